"""The command line ``tfopt``: train, predict, cv, inspect, convert, info, selftest.

The module of a command is loaded only when it is called, so that ``tfopt --help`` loads NumPy and
nothing heavier.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence

from tfopt.cli.files import CommandError, note
from tfopt.errors import FileFormatError

__all__ = ["main"]

#: Optional modules, with the packages to install, which are needed together.
_PACKAGES = {
    "sklearn": ("scikit-learn", "tqdm"),
    "scipy": ("scikit-learn", "tqdm"),
    "tqdm": ("tqdm",),
    "matplotlib": ("matplotlib",),
    "dask": ("dask", "distributed"),
    "distributed": ("dask", "distributed"),
    "fsspec": ("fsspec",),
    "pyarrow": ("pyarrow",),
    "skl2onnx": ("skl2onnx",),
    "argcomplete": ("argcomplete",),
}
_INTERRUPTED = 128 + 2  # what a shell reports for SIGINT
_BROKEN_PIPE = 128 + 13  # and for SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 error, 2 usage error, 3 stopped above --tol, 130 interrupted, 141
        broken pipe.
    """
    try:
        try:
            from tfopt.cli.parser import parse  # slow: inside `try`, to handle interrupts

            arguments = parse(argv)
            module, _, function = arguments.run.partition(":")
            with _thread_count(getattr(arguments, "threads", None)):
                code: int = getattr(importlib.import_module(module), function)(arguments)
        finally:
            # errors of a full disk or a closed pipe appear here, where they are reported
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit as stop:  # argparse, after its help or error message
        return int(stop.code or 0)
    except (CommandError, FileFormatError) as error:
        return _print_error(str(error))
    except ImportError as error:
        missing = error.__cause__ or error  # a package of ours may have said it in words
        module = (getattr(missing, "name", None) or "").partition(".")[0]
        if module not in _PACKAGES:
            raise
        packages = " ".join(_PACKAGES[module])
        return _print_error(f"this needs {module}, which is not installed: pip install {packages}")
    except KeyboardInterrupt as interrupt:
        _print_error(str(interrupt) or "interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except OSError as error:
        if error.filename is None:  # opening a file names it, writing to a stream does not
            if not _cwd_exists():
                return _print_error("the current folder has been removed")
            _discard_output()
        return _print_error(f"{error.filename or '<stdout>'}: {error.strerror or error}")
    except MemoryError:
        return _print_error("not enough memory")
    return code


def _print_error(line: str) -> int:
    with contextlib.suppress(OSError):  # standard error may be closed, too
        note(line)
    return 1


@contextlib.contextmanager
def _thread_count(count: int | None) -> Iterator[None]:
    """Use `count` threads in the kernels within a block; None: leave the number unchanged."""
    if count is None:
        yield
        return
    from tfopt import threads  # loads kernels

    before = threads.get_num_threads()
    threads.set_num_threads(count)
    try:
        yield
    finally:
        threads.set_num_threads(before)


def _cwd_exists() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _discard_output() -> None:
    # Python flushes standard output again at exit, and would print another error.
    with contextlib.suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
