"""Files that a command writes when its work is done: checked before the work begins, and again when they fail."""

from pathlib import Path


def check_output(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose results it is for.

    No folder is made, because a folder that is missing may be a typing error. A file that exists keeps its content.

    Raises:
        OSError: the file cannot be written; names it, the reason and the remedy.
    """
    if not path.parent.is_dir():
        raise OSError(f"{path} cannot be written: there is no folder {path.parent}; make it, or give another file")
    if path.is_dir():
        raise OSError(f"{path} cannot be written: it is a folder; give a file")
    is_new = not path.exists()
    try:
        if is_new or path.is_file():  # a pipe's reader would take a file that is closed for the end
            path.open("ab").close()
        if is_new:
            path.resolve().unlink()  # of a link, the file that it names
    except OSError as error:
        raise OSError(unwritten(path, error)) from error


def unwritten(path: Path, error: OSError) -> str:
    """The message about a file that could not be written."""
    return f"{path} cannot be written: {error.strerror or error}; give another file, or see to its disk and rights"
