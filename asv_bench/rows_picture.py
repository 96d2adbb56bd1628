"""Draw docs/rows_step.svg, the time of steps of rows of a table, from results/compare.sparse.json.

page.py calls it. Requires matplotlib.
"""

from __future__ import annotations

from pathlib import Path

from records import ROOT, Record
from step_picture import in_words

__all__ = ["PICTURE", "draw", "pairs"]

PICTURE = ROOT / "docs" / "rows_step.svg"

#: The rows of the record, of which the rows of the table are in memory, with their names.
STEPS = {
    "adam, 100k zipf merged of 1M x 32, cold against torch SparseAdam": (
        "Adam, lazy", "torch's SparseAdam",
    ),
    "adam, 100k zipf catch up of 1M x 32, cold against Keras Adam": (
        'Adam, sparse="catch_up"', "Keras's Adam, which steps all rows",
    ),
    "adagrad, 100k distinct of 1M x 32, cold against ResourceSparseApplyAdagrad": (
        "Adagrad", "TensorFlow's op",
    ),
    "ftrl, 100k zipf of 1M x 32, cold against ResourceSparseApplyFtrl": (
        "FTRL", "TensorFlow's op",
    ),
}  # fmt: skip


def pairs(record: Record) -> list[tuple[float, float]]:
    """Return the medians of tfopt and of its rival for each step, in seconds."""
    figures = [record.rows[name].figures for name in STEPS]
    return [(each["ours"][1] or 0.0, each["theirs"][1] or 0.0) for each in figures]


def draw(record: Record, path: Path = PICTURE) -> None:
    """Draw two bars for each kind of step, each with its time."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "tfopt", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for place, ((name, rival), times) in enumerate(zip(STEPS.values(), pairs(record), strict=True)):
        bars = [(f"tfopt, {name}", "tab:blue"), (rival, "tab:orange")]
        for below, ((label, colour), time) in enumerate(zip(bars, times, strict=True)):
            height = 2.6 * place + below
            axes.barh(height, time * 1e3, 0.9, color=colour)
            axes.text(
                time * 1e3 * 1.06, height, f"{in_words(time)}  {label}", va="center", fontsize=8
            )
    axes.set(xscale="log", xlim=(1, 4000), xlabel="milliseconds a step", yticks=[])
    axes.invert_yaxis()
    axes.set_title("A step of 100 000 rows of a table of a million: less is better", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
