"""Which files of a folder are data, and which are of those who write and keep them."""

from __future__ import annotations

__all__ = ["is_hidden"]


def is_hidden(inside: str) -> bool:
    """Return whether a file is hidden: its name, or that of a folder on the way, has `.` or `_`.

    That is how Hadoop and Spark mark theirs: ``_SUCCESS``, ``.part-0.crc``.

    Parameters
    ----------
    inside : str
        Its path within the folder, with ``/``.
    """
    return any(part.startswith((".", "_")) for part in inside.split("/"))
