"""Learning clicks from a log that grows: text to a model, with restarts, and answers to requests.

``python docs/examples/click_stream.py clicks.tsv model.pickle`` learns what the file has had since
the last call. A row is the label, 1 or 0, and the fields; a field is a feature, ``column=text``.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np

from tfopt.io import iter_hashed
from tfopt.linear_model import FTRLClassifier

N_HASHES = 2**18


class Clicks:
    """A model of clicks, and how far it has read its log.

    Parameters
    ----------
    path : str
        Where both are kept. If they are there, learning goes on from there, to the same bits as if
        it had never stopped.
    **reading
        Options of `tfopt.io.iter_hashed`: which columns are numbers, say.
    """

    def __init__(self, path: str, **reading: Any) -> None:
        self.path, self.reading = path, reading
        # McMahan et al., Ad click prediction (2013): one example a step
        self.model = FTRLClassifier(
            learning_rate=0.1, beta=1.0, initial_accumulator=0.0, l1=0.5, batch_size=1,
            n_hashes=N_HASHES,
        )  # fmt: skip
        self.end, self.rows, self.lost = 0, 0, 0.0
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.model, self.end, self.rows, self.lost = pickle.load(file)

    def learn(self, log: str) -> Any:
        """Read what is new in a log; yield the mean loss of all rows, before each was learned."""
        for block in iter_hashed(log, N_HASHES, start=self.end, **self.reading):
            self.lost += self._losses(block.X, block.y).sum()
            self.model.partial_fit(block.X, block.y, classes=[0, 1])
            self.end, self.rows = block.end, self.rows + len(block.y)
            self._save()
            yield self.lost / self.rows

    def _losses(self, X: Any, y: np.ndarray) -> np.ndarray:
        if not self.rows:
            return np.full(len(y), np.log(2.0))
        return np.logaddexp(0.0, np.where(y == 1, -1.0, 1.0) * self.model.decision_function(X))

    def _save(self) -> None:
        """Write the file in whole, or leave the old one: a kill between blocks loses nothing."""
        with open(f"{self.path}.new", "wb") as file:
            pickle.dump((self.model, self.end, self.rows, self.lost), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self.path}.new", self.path)

    def answer(self, requests: list[dict[str, Any]]) -> np.ndarray:
        """Return the probabilities of clicks, of dicts from columns to text or numbers."""
        probabilities: np.ndarray = self.model.predict_proba(requests)[:, 1]
        return probabilities


if __name__ == "__main__":
    for loss in Clicks(sys.argv[2]).learn(sys.argv[1]):
        print(f"loss {loss:.5f}")
