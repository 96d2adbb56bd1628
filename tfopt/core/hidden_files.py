"""Tell data files from the marker and metadata files that writers leave in a folder."""

from __future__ import annotations

from typing import Any

__all__ = ["is_hidden", "shown_files"]


def is_hidden(inside: str) -> bool:
    """Return whether a file is hidden: a component of its path begins with ``.`` or ``_``.

    Hadoop and Spark name their marker files this way: ``_SUCCESS``, ``.part-0.crc``.

    Parameters
    ----------
    inside : str
        The path relative to the folder, separated by ``/``.
    """
    return any(part.startswith((".", "_")) for part in inside.split("/"))


def shown_files(fs: Any, folder: str) -> dict[str, str]:
    """Return the URLs of all files in a folder that are not hidden, by relative names, sorted.

    Parameters
    ----------
    fs : fsspec file system
    folder : str
        Its path there.
    """
    paths = (path for path in fs.find(folder) if not path.endswith("/"))
    found = {path[len(folder) :].lstrip("/"): path for path in paths}
    return {
        inside: fs.unstrip_protocol(path)
        for inside, path in sorted(found.items())
        if not is_hidden(inside)
    }
