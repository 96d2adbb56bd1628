"""What a command refuses, and how it is said in one line."""

from __future__ import annotations

from tfopt.cli.console import printable


class CommandError(Exception):
    """A refusal whose text is the one line that the user sees; the exit code is 1."""


def at(name: str, line: int, message: str, token: bytes = b"") -> CommandError:
    """Return the refusal of one place in a file.

    Parameters
    ----------
    name : str
        The file, as the user named it.
    line : int
        Counted from 1, comments and blank lines included.
    message : str
        What is wrong there.
    token : bytes, optional
        The text that is wrong; only its beginning is shown.

    Returns
    -------
    CommandError
        Its text is ``file:line: message 'token'``.
    """
    shown = printable(token[:40].decode("utf-8", "surrogateescape"))
    quoted = f" '{shown}{'...' if len(token) > 40 else ''}'" if token else ""
    return CommandError(f"{printable(name)}:{line}: {message}{quoted}")
