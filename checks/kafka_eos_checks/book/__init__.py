"""The book: the executable spec as static pages, made from the sources by ``kafka-eos book``.

Other packages hold the facts; this one only lays them out. A module of pages returns Markdown (:mod:`.pages` has the
building blocks). :mod:`.site` writes all pages, runs Sphinx, and refuses a book with a broken link.

Read :mod:`.sources` first: it collects what the pages show of an operator.
"""
