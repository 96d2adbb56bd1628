"""Input and output of the command line: files, folders and URLs; lines, JSON and output files.

Text is escaped where it is printed, and nowhere else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tfopt.core.atomic_write import replacing
from tfopt.core.hidden_files import is_hidden, shown_files
from tfopt.errors import FileFormatError
from tfopt.printable import printable

#: The version of the JSON that commands print: it grows when a key changes its meaning or goes.
SCHEMA = 2


class CommandError(Exception):
    """An error that is shown to the user as one line; the exit code is 1."""


def echo(text: str = "") -> None:
    """Print one line on standard output; escape characters that its encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(printable(text).encode(encoding, "backslashreplace").decode(encoding))


def note(text: str) -> None:
    """Print one line on standard error, unless that is closed."""
    if sys.stderr is not None:
        print(printable(text), file=sys.stderr, flush=True)


def note_bad_lines(name: str, count: int, quiet: bool) -> None:
    """Say how many lines of a file were left out."""
    if count and not quiet:
        note(f"{name}: {count} malformed {'line' if count == 1 else 'lines'} left out")


def show_label(label: Any) -> str:
    """Return the label of a class: text, or a number without a needless point."""
    if isinstance(label, str):
        return label
    return f"{label:d}" if isinstance(label, int) else f"{label:.17g}"


def print_json(facts: dict[str, Any]) -> None:
    """Print one JSON object, with null for numbers that are not finite."""
    print(json.dumps(finite({"schema": SCHEMA, **facts}), allow_nan=False))


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not support by None."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- inputs


@dataclasses.dataclass(frozen=True)
class File:
    """A file of data.

    Attributes
    ----------
    path : str
        A path or URL; of a file in a folder an absolute one, which is the same for every process.
    name : str
        The name in messages: relative to the folder as the user named it.
    """

    path: str
    name: str

    @contextlib.contextmanager
    def opened(self) -> Iterator[str | BinaryIO]:
        """Yield what `tfopt.io` reads: a path, or an open URL."""
        if _is_url(self.path):
            with open_url(self.path) as stream:
                yield stream
        else:
            yield self.path

    def error(
        self, line: int | None, message: str, token: str | None = None, column: int | None = None
    ) -> CommandError:
        """Return ``name:line:column: message 'token'``; the line is counted from 1."""
        return CommandError(str(FileFormatError(self.name, message, line, column, token)))


@contextlib.contextmanager
def errors_of(file: File) -> Iterator[None]:
    """Convert errors of a file to one line."""
    try:
        yield
    except FileFormatError as error:
        if error.line is not None:
            raise file.error(error.line, error.message, error.token, error.column) from error
        raise CommandError(f"{file.name}: {error.message}") from error
    except (BrokenPipeError, ModuleNotFoundError):
        raise
    except (OSError, ImportError) as error:  # of a compression that this Python has not
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{file.name}: {reason}") from error


def file_of(path: str) -> File:
    """Return the file that a user names."""
    return File(path, "<stdin>" if path == "-" else path)


def sources_of(path: str) -> list[File]:
    """Return the file that a user names, or the files of a folder."""
    return files_in(path) if is_folder(path) else [file_of(path)]


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


@contextlib.contextmanager
def kept_input(files: list[File]) -> Iterator[list[File]]:
    """Yield files that can be read again: standard input is copied to a temporary one."""
    if files[0].path != "-":
        yield files
        return
    from tfopt.io.streams import open_binary  # loaded if needed only

    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        path = os.path.join(folder, "input")
        with open_binary("-") as stream, open(path, "wb") as copy:
            shutil.copyfileobj(stream, copy, 2**20)
        yield [File(path, files[0].name)]


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
        return shown_files(fs, root)


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


# ---- outputs


def check_writable(path: str, *inputs: str | None) -> None:
    """Refuse an output file that cannot be written, before any work is done.

    `inputs` are files, which must not be overwritten, and folders, which must not get outputs.
    """
    if os.path.isdir(path):
        raise CommandError(f"{path}: is a folder")
    if os.path.islink(path) and not os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            os.stat(path)  # raises an error for cyclic links
    if any(file and _is_same_file(file, path) for file in inputs):
        raise CommandError(f"{path}: is also an input and would be overwritten")
    check_outside(path, *inputs)
    folder = Path(os.path.realpath(path)).parent
    place = path if _is_device(path) else folder
    if not os.path.exists(place):
        raise CommandError(f"{path}: no such folder '{folder}'")
    if not os.access(place, os.W_OK):
        raise CommandError(f"{path}: '{place}' is not writable")


def check_outside(path: str, *inputs: str | None) -> None:
    """Refuse an output inside a folder of data, which the next run would read as data."""
    for folder in filter(None, inputs):
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        if os.path.isdir(folder) and inside:
            raise CommandError(f"{path}: is in {folder}, where all files are data")


def write_atomically(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file under a temporary name, then rename it; a link is followed, and stays.

    A device or a pipe (``/dev/null``, ``/dev/stdout``) is written directly.
    """
    try:
        with open(path, "wb") if _is_device(path) else replacing(path) as file:
            file.writelines(chunks)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, for example: the error does not name the file
        raise CommandError(f"{path}: {error.strerror}") from error


def _is_same_file(input_path: str, output_path: str) -> bool:
    both = os.path.exists(input_path) and os.path.exists(output_path)
    return both and os.path.samefile(input_path, output_path)


def _is_device(path: str) -> bool:
    try:
        # of the unresolved name: what /dev/fd/63 resolves to cannot be opened by name
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
