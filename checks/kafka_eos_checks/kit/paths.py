"""The places of the project's own files: in a clone, or those that the wheel carries."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
CLONE = _PACKAGE.parent.parent


def is_clone() -> bool:
    """Whether this package is that of a clone, and not installed from a wheel."""
    return (CLONE / "pom.xml").is_file() and (CLONE / "spec" / "models").is_dir()


def spec_folder() -> Path:
    """The folder of the TLA+ modules; the wheel carries all of them."""
    return CLONE / "spec" if is_clone() else _PACKAGE / "spec"


def recordings_folder() -> Path:
    """The folder of the kept recordings; the wheel carries the small ones."""
    return CLONE / "checks" / "recordings" if is_clone() else _PACKAGE / "recordings"


def pom_file() -> Path:
    """The file by which Maven fetches the jars."""
    return CLONE / "pom.xml" if is_clone() else _PACKAGE / "pom.xml"


def build_folder() -> Path:
    """The folder of what commands fetch, keep and find again: ``build/`` of the clone, else of the current folder."""
    return (CLONE if is_clone() else Path.cwd()) / "build"


def output_folder() -> Path:
    """The folder of pages and pictures: ``build/`` of the clone for a call inside of it, else of the current folder."""
    return build_folder() if Path.cwd().is_relative_to(CLONE) else Path.cwd() / "build"
