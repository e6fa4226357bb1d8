"""Where the project's own files are: in a clone, or inside the wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
CLONE = _PACKAGE.parent.parent


def spec_folder() -> Path:
    """The folder of the TLA+ modules: the clone's ``spec/``, else the copy that the wheel carries."""
    in_clone = CLONE / "spec"
    return in_clone if in_clone.is_dir() else _PACKAGE / "spec"


def build_folder() -> Path:
    """Where the commands write: ``build/`` of the clone, else of the current folder."""
    return (CLONE if (CLONE / "spec").is_dir() else Path.cwd()) / "build"
