"""What a training run gives, and how it is told."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from tfopt.cli.console import printable, say
from tfopt.cli.model import Model
from tfopt.cli.scores import score_line
from tfopt.versions import versions


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What `--solver sdca` proves: the minimum is between objective - gap and objective.

    Attributes
    ----------
    objective, gap : float
        Of the mean loss and the penalties.
    tol : float
        What the gap was to be, as a share of the objective.
    iterations : int
    classes : dict
        Of more than two classes each one's certificate by its label; objective, gap and iterations
        are then their sums.
    """

    objective: float
    gap: float
    tol: float
    iterations: int
    classes: dict[float, Certificate] = dataclasses.field(default_factory=dict)

    @property
    def relative_gap(self) -> float:
        return self.gap / abs(self.objective) if self.gap else 0.0

    def line(self) -> str:
        """Return it as one line of text."""
        worst, label = self, ""
        if self.classes:
            farthest = max(self.classes, key=lambda name: self.classes[name].relative_gap)
            worst = self.classes[farthest]
            label = f", class {farthest:g} the farthest ({worst.relative_gap:.1e})"
        verdict = "" if worst.relative_gap <= self.tol else f", which is above tol {self.tol:g}"
        return (
            f"objective {self.objective:.8g}, at most {self.gap:.2g} ({self.relative_gap:.1e}) "
            f"above the minimum{label}{verdict}; {self.iterations} iterations"
        )

    def facts(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        facts = {name: getattr(self, name) for name in ("objective", "gap", "tol", "iterations")}
        facts["relative_gap"] = self.relative_gap
        if self.classes:
            facts["classes"] = [
                {"label": label, **each.facts()} for label, each in self.classes.items()
            ]
        return facts


@dataclasses.dataclass(frozen=True)
class Result:
    """What a training run gives.

    Attributes
    ----------
    model : Model
    history : dict
        "train" and perhaps "test": the mean loss after each epoch.
    scores : dict
        "train" and perhaps "test": see `tfopt.cli.scores.score`; of a folder, without AUC.
    rows : dict
        "train" and perhaps "test": how many.
    seconds : float
        Spent in training.
    certificate : Certificate or None
        Of ``--solver sdca``; then `history` has the last loss alone.
    """

    model: Model
    history: dict[str, list[float]]
    scores: dict[str, dict[str, float | None]]
    rows: dict[str, int]
    seconds: float
    certificate: Certificate | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows trained on per second, each counted once per epoch (of each class, if several)."""
        epochs = self.certificate.iterations if self.certificate else len(self.history["train"])
        return self.rows["train"] * epochs / self.seconds


def print_text(result: Result, path: str) -> None:
    """Print the scores, the speed and where the model is, for people."""
    for part, scores in result.scores.items():
        say(f"{part:<5}  {score_line(scores)}")
    if result.certificate:
        say(f"proof  {result.certificate.line()}")
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
        "features": model.n_features,
        "nonzero_weights": int((model.weights != 0).sum()),
        "classes": model.classes,
        "zero_based": model.zero_based,
        "scores": {part: _in_full(scores, model) for part, scores in result.scores.items()},
        "loss_per_epoch": result.history,
        "rows_per_second": result.rows_per_second,
        "seconds": result.seconds,
        "versions": versions(),
    }
    if result.certificate:
        facts["certificate"] = result.certificate.facts()
    print(json.dumps(facts))


def _in_full(scores: dict[str, float | None], model: Model) -> dict[str, float | None]:
    """Return scores with AUC as None if it is left out, so that all of a kind have the same."""
    separates_two = model.classes is not None and len(model.classes) == 2
    return scores | ({"auc": scores.get("auc")} if separates_two else {})
