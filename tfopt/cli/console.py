"""Text for people: safe to print whatever a file name or a file holds."""

from __future__ import annotations

import sys


def printable(text: str) -> str:
    r"""Return `text` on one line: control characters and undecodable bytes as ``\x`` escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def say(text: str) -> None:
    """Print a line on standard output, with escapes for what its encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
