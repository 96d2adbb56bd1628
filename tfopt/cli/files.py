"""Input files: local ones, folders, URLs, and parts of files that are read one at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from tfopt.cli.output import CommandError
from tfopt.core.hidden_files import is_hidden
from tfopt.errors import FileFormatError

__all__ = ["File", "file_of", "files_in", "is_folder", "open_url"]


@dataclasses.dataclass(frozen=True)
class File:
    """A file, or a part of one.

    Attributes
    ----------
    path : str
        A path or URL; of a file in a folder an absolute one, which is the same for every process.
    name : str
        The name in messages: relative to the folder as the user named it.
    start, stop : int
        The part from one byte to another (of Parquet: from one row group); stop 0: the whole file.
    n_before : int or None
        The lines before the part; None: they are counted when an error needs them.
    """

    path: str
    name: str
    start: int = 0
    stop: int = 0
    n_before: int | None = 0

    @property
    def is_whole(self) -> bool:
        return not self.stop

    @contextlib.contextmanager
    def opened(self, header: bytes = b"") -> Iterator[str | BinaryIO]:
        """Yield what `tfopt.io` reads: a path, an open URL, or the bytes of a part."""
        if _is_url(self.path):
            with open_url(self.path) as stream:
                yield stream
        elif self.is_whole:
            yield self.path
        else:
            with open(self.path, "rb") as stream:
                stream.seek(self.start)
                part = stream.read(self.stop - self.start)
            yield io.BytesIO(header + part if header else part)

    def error(
        self, line: int, message: str, token: str | None = None, column: int | None = None
    ) -> CommandError:
        """Return ``name:line:column: message 'token'``; the line is counted from 1 in the part."""
        line += self._lines_before()
        return CommandError(str(FileFormatError(self.name, message, line, column, token)))

    def _lines_before(self) -> int:
        if self.n_before is not None:
            return self.n_before
        count, left = 0, self.start
        with open(self.path, "rb") as stream:
            while piece := stream.read(min(left, 2**20)):
                count, left = count + piece.count(b"\n"), left - len(piece)
        return count


def file_of(path: str) -> File:
    """Return the file that a user names."""
    return File(path, "<stdin>" if path == "-" else path)


def is_folder(path: str) -> bool:
    """Return whether a path or URL is a folder."""
    if not _is_url(path):
        return path != "-" and os.path.isdir(path)
    with _filesystem(path) as (fs, inside):
        return bool(fs.isdir(inside))


def open_url(url: str) -> io.BufferedReader:
    """Open a file for reading."""
    with _filesystem(url) as (fs, inside):
        return io.BufferedReader(fs.open(inside, "rb"), 2**20)


def files_in(folder: str) -> list[File]:
    """Return the files of a folder and its subfolders, sorted by name; at least one.

    Hidden ones are left out: files and subfolders whose names begin with ``.`` or ``_``.
    """
    paths = _files_at_url(folder) if _is_url(folder) else _files_on_disk(folder)
    shown = {inside: path for inside, path in paths.items() if not is_hidden(inside)}
    if not shown:
        raise CommandError(f"{folder}: there are no files in this folder")
    name = folder.rstrip("/")
    return [File(shown[inside], f"{name}/{inside}") for inside in sorted(shown)]


def _is_url(path: str) -> bool:
    return "://" in path


def _files_on_disk(folder: str) -> dict[str, str]:
    """Return the paths of all files in a local folder, by relative names."""
    return {
        os.path.relpath(path, folder).replace(os.sep, "/"): os.path.abspath(path)
        for parent, _, names in os.walk(folder, onerror=_raise, followlinks=True)
        for path in (os.path.join(parent, name) for name in names)
    }


def _raise(error: OSError) -> NoReturn:
    raise error


def _files_at_url(folder: str) -> dict[str, str]:
    with _filesystem(folder) as (fs, root):
        found_paths = [path for path in fs.find(root) if not path.endswith("/")]
        return {path[len(root) :].lstrip("/"): fs.unstrip_protocol(path) for path in found_paths}


@contextlib.contextmanager
def _filesystem(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the fsspec file system and the path; convert errors to one line."""
    import fsspec  # loaded if needed only

    try:
        yield fsspec.url_to_fs(url)
    except Exception as error:  # file systems have their own exceptions
        missing = isinstance(error, FileNotFoundError)  # its text may be the path alone
        reason = os.strerror(errno.ENOENT) if missing else getattr(error, "strerror", None)
        raise CommandError(f"{url}: {reason or str(error) or type(error).__name__}") from error
