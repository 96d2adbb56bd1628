"""The progress of a fit: a bar, and the records passed to a callback."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfopt.imports import imported

__all__ = ["ProgressBar", "reporting"]


@contextlib.contextmanager
def reporting(
    verbose: bool, max_iter: int, callback: Callable[[dict[str, Any]], object] | None
) -> Iterator[tuple[Callable[[dict[str, Any]], None], Callable[[], bool]]]:
    """Yield two functions: one takes the record of each iteration, one tells if the fit must stop.

    The fit must stop if the callback has returned True.
    """
    lock, stopped, errors = threading.Lock(), threading.Event(), np.geterr()
    with ProgressBar(verbose, max_iter) as progress:

        def report(record: dict[str, Any]) -> None:
            with lock, np.errstate(**errors):  # problems are solved in parallel
                progress(record)
                answer = callback(record) if callback is not None else None
                if answer is True or (isinstance(answer, np.bool_) and answer):
                    stopped.set()

        yield report, stopped.is_set


class ProgressBar:
    """A progress bar of iterations, if verbose."""

    def __init__(self, verbose: bool, max_iter: int) -> None:
        self._bar: Any = None
        self._reasons: set[str] = set()
        if verbose:
            self._bar = imported("tqdm.auto").tqdm(total=max_iter, unit="epoch")

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        return self._update

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _update(self, record: dict[str, Any]) -> None:
        if self._bar is not None:
            # problems take turns; the bar shows the one with the most iterations
            self._bar.update(max(record["iteration"] - self._bar.n, 0))
            name = "gap" if "gap" in record else "loss"
            self._bar.set_postfix({name: f"{record[name]:.1e}"})
            reason = record.get("reason", "")
            if reason and reason not in self._reasons:
                self._reasons.add(reason)
                self._bar.write(reason, file=self._bar.fp)
