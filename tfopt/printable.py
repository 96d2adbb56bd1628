"""Text that is safe to print on one line."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return `text` on one line: control characters and undecodable bytes as ``\x`` escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
