"""What a training run gives, and how it is told."""

from __future__ import annotations

import argparse
import dataclasses
import json

from tfopt.cli.console import printable, say
from tfopt.cli.model import Model
from tfopt.cli.scores import score_line
from tfopt.versions import versions


@dataclasses.dataclass(frozen=True)
class Result:
    """What a training run gives.

    Attributes
    ----------
    model : Model
    history : dict
        "train" and perhaps "test": the mean loss after each epoch.
    scores : dict
        "train" and perhaps "test": see `tfopt.cli.scores.score`.
    rows : dict
        "train" and perhaps "test": how many.
    seconds : float
        Spent in `train_epochs`.
    """

    model: Model
    history: dict[str, list[float]]
    scores: dict[str, dict[str, float | None]]
    rows: dict[str, int]
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows trained on per second, each counted once per epoch."""
        return self.rows["train"] * len(self.history["train"]) / self.seconds


def print_text(result: Result, path: str) -> None:
    """Print the scores, the speed and where the model is, for people."""
    for part, scores in result.scores.items():
        say(f"{part:<5}  {score_line(scores)}")
    say(f"speed  {result.rows_per_second:,.0f} rows/s ({result.seconds:.2f} s in training)")
    say(f"model  {printable(path)}")


def print_json(result: Result, arguments: argparse.Namespace, threads: int) -> None:
    """Print one JSON object with everything that `print_text` tells and what it came from."""
    model = result.model
    facts = {
        "command": "train",
        "data": arguments.data,
        "test_data": arguments.test,
        "model": arguments.model,
        "settings": model.settings,
        "seed": model.settings["seed"],
        "threads": threads,
        "rows": result.rows,
        "features": model.weights.size,
        "nonzero_weights": int((model.weights != 0).sum()),
        "classes": model.classes,
        "zero_based": model.zero_based,
        "scores": result.scores,
        "loss_per_epoch": result.history,
        "rows_per_second": result.rows_per_second,
        "seconds": result.seconds,
        "versions": versions(),
    }
    print(json.dumps(facts))
