"""Output files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.core.atomic_write import replacing


def check_writable(path: str, *inputs: str | None) -> None:
    """Refuse an output path that could not be written, before any work is done for it.

    Parameters
    ----------
    path : str
        The file to be written later.
    *inputs : str or None
        Files that must not be overwritten, and folders that nothing must be written to.

    Raises
    ------
    CommandError
        If it is a folder or an input, or its folder is missing or not writable.
    """
    if os.path.isdir(path):
        raise CommandError(f"{printable(path)}: is a folder")
    if os.path.islink(path) and not os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            os.stat(path)  # which notices links that go round in a circle
    if any(file and _is_same(file, path) for file in inputs):
        raise CommandError(f"{printable(path)}: is also an input and would be overwritten")
    check_outside(path, *inputs)
    folder = Path(os.path.realpath(path)).parent
    place = path if _is_device(path) else folder
    if not os.path.exists(place):
        raise CommandError(f"{printable(path)}: no such folder '{printable(str(folder))}'")
    if not os.access(place, os.W_OK):
        raise CommandError(f"{printable(path)}: '{printable(str(place))}' is not writable")


def check_outside(path: str, *inputs: str | None) -> None:
    """Refuse an output in a folder of data: the next run would read it as data, too.

    Raises
    ------
    CommandError
    """
    for folder in filter(None, inputs):
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        if os.path.isdir(folder) and inside:
            raise CommandError(
                f"{printable(path)}: is in {printable(folder)}, where all files are data"
            )


def write_atomically(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file under a temporary name, then rename it: readers see the old or the new one.

    A device or a pipe (``/dev/null``, ``/dev/stdout``) is written directly.

    Parameters
    ----------
    path : str
        The file. A symbolic link is followed, so that the link stays.
    chunks : iterable of bytes
        Its content.
    """
    try:
        if _is_device(path):
            with open(path, "wb") as file:
                file.writelines(chunks)
        else:
            with replacing(path) as file:
                file.writelines(chunks)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, say: the error does not know which file
        raise CommandError(f"{printable(path)}: {error.strerror}") from error


def _is_same(input_path: str, output_path: str) -> bool:
    both = os.path.exists(input_path) and os.path.exists(output_path)
    return both and os.path.samefile(input_path, output_path)


def _is_device(path: str) -> bool:
    try:
        # of the name as given: what /dev/fd/63 resolves to has no name that can be opened
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
