"""What the command line writes: lines that any terminal takes, JSON, and files, whole or absent."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfopt.core.atomic_write import replacing
from tfopt.core.printable import printable

#: The version of the JSON that commands print: it grows when a key changes its meaning or goes.
SCHEMA = 1


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


def show_label(label: Any) -> str:
    """Return the label of a class: text, or a number without a needless point."""
    return label if isinstance(label, str) else f"{label:.17g}"


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
