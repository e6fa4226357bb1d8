"""``kafka-eos book``: the executable spec as static pages, made from the sources.

The pages work from the file system, without a network and without a script. TLC runs once for each story; its runs are
kept in build/checked/book, so that a second call takes only as long as the pages.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.missing import need, need_clone
from kafka_eos_checks.kit.paths import build_folder, output_folder

EPILOG = """examples:
  kafka-eos book                    build/book/index.html
  kafka-eos book --out /tmp/book

exit codes: 0 the book is written, 1 a link in it is broken, a page too large, or Sphinx refuses it, 2 something that it
needs is missing, or a guide names something that does not exist
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``book``."""
    parser = subparsers.add_parser(
        "book",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the pages (default build/book)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``book``."""
    need("sphinx", "book")
    need_clone("the sources, the specs and the documents")
    from kafka_eos_checks.book.errors import MalformedErrors  # noqa: PLC0415 - these read what only a clone has
    from kafka_eos_checks.book.guides import MalformedGuide  # noqa: PLC0415
    from kafka_eos_checks.book.site import BrokenBook, make  # noqa: PLC0415
    from kafka_eos_checks.book.sources import Book  # noqa: PLC0415
    from kafka_eos_checks.book.stories import NoStory  # noqa: PLC0415

    out = arguments.out or output_folder() / "book"
    start = time.monotonic()
    try:
        count = make(Book(), build_folder() / "book-source", out)
    except BrokenBook as error:
        print(f"kafka-eos book: {error}", file=sys.stderr)
        return 1
    except (MalformedGuide, MalformedErrors, NoStory) as error:
        print(f"kafka-eos book: {error}", file=sys.stderr)
        return 2
    print(f"{count} pages in {time.monotonic() - start:.0f} s: {out / 'index.html'}")
    return 0
