"""Progress of a run on standard error, and its result as text, as JSON and as a picture."""

from __future__ import annotations

import argparse
import dataclasses
import io
import math
import os
import sys
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from tfopt import threads
from tfopt.cli.files import echo, note, show_label, write_atomically
from tfopt.cli.metrics import score_line
from tfopt.core.versions import versions
from tfopt.linear_model.stored_model import Columns, StoredModel

#: The exit code of a fit that stopped above --tol.
NOT_REACHED = 3
MANY = 2**24  # features: a model takes more than 100 MB


class Progress:
    """A bar on a terminal, else lines; silent if `quiet`. The options are those of tqdm."""

    def __init__(self, quiet: bool, **options: Any) -> None:
        quiet = quiet or sys.stderr is None
        terminal = not quiet and sys.stderr.isatty()
        self._prints_lines = not quiet and not terminal
        # a terminal without a size (in a container, say) would get a bar of width 0
        columns = os.get_terminal_size(sys.stderr.fileno()).columns if terminal else 0
        self._bar = tqdm(
            desc="training", disable=not terminal, ncols=min(columns or 80, 80), **options
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def advance(self, count: float = 1) -> None:
        """Count what is done."""
        self._bar.update(count)

    def show(self, line: str, **values: Any) -> None:
        """Show values at the end of the bar, or the line."""
        self._bar.set_postfix(values, refresh=False)
        if self._prints_lines and line:
            note(line)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The certificate of a fit: the minimum is between objective - gap and objective.

    Attributes
    ----------
    objective, gap : float
        Of the mean loss and the penalties.
    tol : float
        The requested relative gap.
    iterations : int
    reasons : tuple of str
        Why each solver began or took over.
    classes : dict
        With more than two classes, the certificate of each label; objective, gap and iterations are
        then their sums.
    """

    objective: float
    gap: float
    tol: float
    iterations: int
    reasons: tuple[str, ...] = ()
    classes: dict[Any, Certificate] = dataclasses.field(default_factory=dict)

    @property
    def relative_gap(self) -> float:
        if not self.gap:
            return 0.0
        return self.gap / abs(self.objective) if self.objective else math.inf

    @property
    def farthest(self) -> Certificate:
        """The certificate of the class with the largest relative gap, or this one."""
        return max(self.classes.values(), key=lambda each: each.relative_gap, default=self)

    @property
    def converged(self) -> bool:
        """Whether the relative gap, or that of each class, is at most `tol`."""
        return self.farthest.relative_gap <= self.tol

    def line(self) -> str:
        """Return the certificate as one line of text."""
        worst, label = self, ""
        if self.classes:
            farthest = max(self.classes, key=lambda name: self.classes[name].relative_gap)
            worst = self.classes[farthest]
            label = f", class {show_label(farthest)} the farthest ({worst.relative_gap:.1e})"
        verdict = "" if self.converged else f", which is above tol {self.tol:g}"
        return (
            f"objective {self.objective:.8g}, at most {self.gap:.2g} ({self.relative_gap:.1e}) "
            f"above the minimum{label}{verdict}; {self.iterations} iterations"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate for JSON."""
        facts = {name: getattr(self, name) for name in ("objective", "gap", "tol", "iterations")}
        if self.reasons:
            facts["reasons"] = list(self.reasons)
        facts["relative_gap"] = self.relative_gap
        facts["converged"] = self.converged
        if self.classes:
            facts["classes"] = [
                {"label": label, **each.as_dict()} for label, each in self.classes.items()
            ]
        return facts


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a training run.

    Attributes
    ----------
    model : StoredModel
    losses : dict
        "train", and perhaps "test": the mean loss.
    scores : dict
        By the same names: see `Evaluation.scores`.
    rows, bad_lines : dict of int
        The numbers of rows and of lines left out, by the same names.
    seconds : float
        Spent in training.
    certificate : Certificate or None
        That of the minimum; None for a stream.
    gaps : list of list of (int, float)
        For each class, the certified iterations with their relative gaps.
    progress : list of [int, float]
        For a stream: numbers of rows with their mean loss, that of each row before it was learned.
    """

    model: StoredModel
    losses: dict[str, float]
    scores: dict[str, dict[str, float | None]]
    rows: dict[str, int]
    bad_lines: dict[str, int]
    seconds: float
    certificate: Certificate | None = None
    gaps: list[list[tuple[int, float]]] = dataclasses.field(default_factory=list)
    progress: list[list[float]] = dataclasses.field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Rows trained on per second, each counted once per epoch (of each class, if several)."""
        rows = self.progress[-1][0] if self.progress else self.rows["train"]
        return rows * (self.certificate.iterations if self.certificate else 1) / self.seconds


def print_text(result: Result, path: str | None) -> None:
    """Print the scores, the speed and the path of the model, for people."""
    for part, scores in result.scores.items():
        echo(f"{part:<5}  {score_line(scores)}")
    if result.certificate:
        echo(f"gap    {result.certificate.line()}")
        for reason in result.certificate.farthest.reasons:
            echo(f"solver {reason}")
    for rows, loss in result.progress[-1:]:
        echo(f"loss   {loss:.6g}, the mean of {rows:,} rows, each before it was learned")
    echo(f"speed  {result.rows_per_second:,.0f} rows/s ({result.seconds:.2f} s in training)")
    echo(f"model  {path or 'not written: --model OUT writes it'}")


def train_facts(result: Result, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `print_text` prints, with the settings and data behind it."""
    model = result.model
    facts = {
        "command": "train",
        "data": arguments.data,
        "test_data": arguments.test,
        "model": arguments.model,
        "settings": model.settings,
        "seed": model.settings.get("seed"),
        "threads": threads.get_num_threads(),
        "rows": result.rows,
        "bad_lines": result.bad_lines,
        "features": model.n_features,
        "nonzero_weights": int((model.weights != 0).sum()),
        "classes": model.labels,
        "zero_based": model.zero_based,
        "scores": result.scores,
        "losses": result.losses,
        "rows_per_second": result.rows_per_second,
        "seconds": result.seconds,
        "versions": versions(),
    }
    if result.certificate is None:
        return facts | {"progressive_losses": result.progress}
    certificate = result.certificate.as_dict()
    return facts | {"certificate": certificate, "gap_per_iteration": result.gaps}


def note_left_out(name: str, columns: Columns | None, quiet: bool) -> None:
    """Say which columns of a table were not used as features."""
    encoding = None if columns is None else columns.encoding
    if encoding is not None and encoding.left_out and not quiet:
        names = ", ".join(map(repr, encoding.left_out))
        note(f"{name}: left out {names}: no value, or no two texts that occur often")


def note_model_size(n_features: int, quiet: bool) -> None:
    """Note the size of a very large model, which may be due to a typo in an index."""
    if n_features >= MANY and not quiet:
        note(
            f"note: with {n_features} features a model takes {8 * n_features / 1e9:.1f} GB for "
            "each class, in memory and in its file, and to train it takes more"
        )


def warn_unconverged(gap: float, tol: float, epochs: int, what: str = "the gap") -> int:
    """Warn on standard error if a relative gap is above the tolerance; return the exit code."""
    if gap <= tol:
        return 0
    note(
        f"warning: {what} is {gap:.2g} after {epochs} iterations, above --tol {tol:g}: raise "
        "--epochs or --tol, or scale the features"
    )
    return NOT_REACHED


def save_plot(path: str, title: str, result: Result) -> None:
    """Draw the gap after each iteration; the suffix of the path determines the format."""
    # without pyplot, which would look for a display
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    certificate = result.certificate
    assert certificate is not None
    axes = figure.add_subplot(xlabel="iteration", ylabel="relative gap", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_yscale("log")
    axes.axhline(certificate.tol, color="0.5", linestyle=":", label="tol")
    labels = [f"{label}" for label in certificate.classes] or [""]
    for label, points in zip(labels, result.gaps, strict=True):
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, marker=".", label=label)
    axes.grid(alpha=0.3)
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:].lower(), dpi=150)
    write_atomically(path, [picture.getvalue()])
