"""The book: the executable spec as static pages, made from the sources by ``kafka-eos book``.

Rooms below say what is true; this one only lays it out. A module of pages returns Markdown (:mod:`.pages` has the
building blocks), :mod:`.site` writes all of them and runs Sphinx, and refuses a book with a broken link.

Read :mod:`.sources` first: what the pages know of an operator.
"""
