"""Where data lie: files, folders of them, and what fsspec makes look like either."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.core.hidden_files import is_hidden

__all__ = ["File", "files_in", "is_folder", "is_url", "open_url"]


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a folder.

    Attributes
    ----------
    path : str
        The same for every process, wherever it runs.
    name : str
        In messages: after the folder's name, as that was given.
    """

    path: str
    name: str


def is_url(path: str) -> bool:
    """Return whether a name is a URL, as fsspec has them."""
    return "://" in path


def is_folder(path: str) -> bool:
    """Return whether there is a folder of that name."""
    if not is_url(path):
        return path != "-" and os.path.isdir(path)
    with _store(path) as (fs, inside):
        return bool(fs.isdir(inside))


def open_url(url: str) -> io.BufferedReader:
    """Open a file for reading."""
    with _store(url) as (fs, inside):
        return io.BufferedReader(fs.open(inside, "rb"), 2**20)


def files_in(folder: str) -> list[File]:
    """Return the files of a folder and of those within it, in the order of their names.

    Those that are hidden are left out: their names, or that of a folder on the way to them, begin
    with ``.`` or ``_``.

    Raises
    ------
    CommandError
        If there are none.
    """
    paths = _urls(folder) if is_url(folder) else _paths(folder)
    shown = {inside: path for inside, path in paths.items() if not is_hidden(inside)}
    if not shown:
        raise CommandError(f"{printable(folder)}: there are no files in this folder")
    name = folder.rstrip("/")
    return [File(shown[inside], f"{name}/{inside}") for inside in sorted(shown)]


def _paths(folder: str) -> dict[str, str]:
    """Return the paths of all files by their names within a folder of this machine."""
    return {
        os.path.relpath(path, folder).replace(os.sep, "/"): os.path.abspath(path)
        for parent, _, names in os.walk(folder, onerror=_refuse, followlinks=True)
        for path in (os.path.join(parent, name) for name in names)
    }


def _refuse(error: OSError) -> NoReturn:
    raise error


def _urls(folder: str) -> dict[str, str]:
    with _store(folder) as (fs, root):
        found = [path for path in fs.find(root) if not path.endswith("/")]
        return {path[len(root) :].lstrip("/"): fs.unstrip_protocol(path) for path in found}


@contextlib.contextmanager
def _store(url: str) -> Iterator[tuple[Any, str]]:
    """Yield a file system and the path there; say in one line what it refuses."""
    import fsspec  # loaded if needed only

    try:
        yield fsspec.url_to_fs(url)
    except Exception as error:  # each store has exceptions of its own
        missing = isinstance(error, FileNotFoundError)  # its text may be the path alone
        reason = os.strerror(errno.ENOENT) if missing else getattr(error, "strerror", None)
        reason = reason or str(error) or type(error).__name__
        raise CommandError(f"{printable(url)}: {printable(reason)}") from error
