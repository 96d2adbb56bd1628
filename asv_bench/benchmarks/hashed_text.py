"""Rows of categories from text to a model: how many times as fast as others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from .common import best_times, public

ROWS, COLUMNS, HASHES = 20_000, 20, 2**18


def rows_of_text() -> list[list[str]]:
    """Return rows of a label, a number and categories, of which some are frequent."""
    random = np.random.default_rng(0)
    fields = [random.integers(0, 2, ROWS).astype(str), random.random(ROWS).round(3).astype(str)]
    for _ in range(COLUMNS):
        words = [f"{x:x}" for x in random.integers(0, 2**31, int(10 ** random.uniform(1, 4)))]
        fields.append(np.array(words)[random.zipf(1.3, ROWS) % len(words)])
    return np.stack(fields, axis=1).tolist()


class ClickLog:
    """Rows of 20 categories and a number, learned with a step for each."""

    timeout = 300

    def setup(self) -> None:
        rows = rows_of_text()
        self.text = "".join("\t".join(row) + "\n" for row in rows).encode()
        self.names = [str(k) for k in range(2, COLUMNS + 2)]
        self.lines = "".join(
            f"{2 * int(y) - 1} |x n:{x} |c "
            + " ".join(f"{name}={v}" for name, v in zip(self.names, values, strict=True))
            + "\n"
            for y, x, *values in rows
        )
        self.read, self.kind = public("io.iter_hashed"), public("linear_model.FTRLClassifier")

    def model(self) -> Any:
        return self.kind(n_hashes=HASHES, batch_size=1, learning_rate=0.1, beta=1.0, l1=0.5)

    def time_learn(self) -> None:
        model = self.model()
        for block in self.read(io.BytesIO(self.text), HASHES, numeric=[1]):
            model.partial_fit(block.X, block.y, classes=[0, 1])

    def time_read(self) -> None:
        for _ in self.read(io.BytesIO(self.text), HASHES, numeric=[1]):
            pass

    def learn_dicts(self) -> None:
        model, rows, y = self.model(), [], []
        for line in io.BytesIO(self.text):
            label, number, *values = line.decode().rstrip("\n").split("\t")
            row: dict[str, Any] = dict(zip(self.names, values, strict=True))
            row["1"] = float(number)
            rows.append(row)
            y.append(float(label))
            if len(rows) == 4096:
                model.partial_fit(rows, np.array(y), classes=[0, 1])
                rows, y = [], []
        model.partial_fit(rows, np.array(y), classes=[0, 1])

    def track_times_the_speed_of_a_loop(self) -> float:
        theirs, ours = best_times(self.learn_dicts, self.time_learn)
        return theirs / ours

    def track_thousand_rows_per_second(self) -> float:
        (seconds,) = best_times(self.time_learn)
        return ROWS / seconds / 1000

    def track_times_the_speed_of_vowpal_wabbit(self) -> float:
        """Its own reader learns a file in its format."""
        try:
            from vowpalwabbit import Workspace
        except ImportError as error:
            raise NotImplementedError("vowpalwabbit is not installed") from error
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".vw") as file:
            file.write(self.lines)
            file.flush()

            def theirs() -> None:
                Workspace(
                    f"--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --l1 0.5 -b 18 --quiet"
                    f" --loss_function logistic -d {file.name}"
                ).finish()

            rival, ours = best_times(theirs, self.time_learn)
        return rival / ours
