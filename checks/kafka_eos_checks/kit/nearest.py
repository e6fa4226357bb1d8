"""The known word nearest to one that is not known, for error messages."""

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The question to append to an error message, such as ``; did you mean audit?``; "" when no known word is near."""
    import difflib  # noqa: PLC0415 - only a call that fails needs it

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
