"""LIBSVM text: how many times as fast as scikit-learn's reader."""

from __future__ import annotations

import io

import numpy as np

from .common import best_times, public

#: Rows, columns, share of entries, digits of a value: short numbers, and all digits of a double.
FILES = {"text, 6 digits": (40_000, 40_000, 60, 6), "dense, 17 digits": (20_000, 50, 50, 17)}


def libsvm_text(rows: int, columns: int, entries: int, digits: int) -> bytes:
    """Return rows of normal numbers, a class of 1 or -1 each."""
    random = np.random.default_rng(0)
    lines = []
    for label in random.choice(["1", "-1"], rows):
        index = np.sort(random.choice(columns, entries, replace=False)) + 1
        values = random.standard_normal(entries)
        pairs = [f"{k}:{x:.{digits}g}" for k, x in zip(index, values, strict=True)]
        lines.append(" ".join([label, *pairs]))
    return "\n".join(lines).encode()


class Libsvm:
    """Read the whole text into a CSR matrix."""

    params = (list(FILES),)
    param_names = ("file",)
    timeout = 300

    def setup(self, file: str) -> None:
        from sklearn.datasets import load_svmlight_file

        self.read, self.rival = public("io.read_libsvm"), load_svmlight_file
        self.text = libsvm_text(*FILES[file])

    def time_read(self, file: str) -> None:
        self.read(io.BytesIO(self.text))

    def track_times_the_speed_of_scikit_learn(self, file: str) -> float:
        theirs, ours = best_times(
            lambda: self.rival(io.BytesIO(self.text)), lambda: self.read(io.BytesIO(self.text))
        )
        return theirs / ours
