"""Draw docs/adam_step.svg, the time of a step of Adam over its size, from results/busy.json.

page.py calls it with the record that the table "busy, medians" shows. Requires matplotlib.
"""

from __future__ import annotations

from pathlib import Path

from page_text import number
from records import ROOT, Record

__all__ = ["PICTURE", "draw"]

PICTURE = ROOT / "docs" / "adam_step.svg"

#: The libraries of the record, with their names in the picture, colours, and on which side of a
#: point its time stands.
LINES = {
    "TensorFlow": ("TensorFlow's op", "tab:orange", 7),
    "torch": ("torch, fused", "tab:red", 7),
    "tfopt": ("tfopt", "tab:blue", -14),
}


def in_words(seconds: float) -> str:
    """Return a time to three digits, in µs below a millisecond."""
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"


def draw(record: Record, path: Path = PICTURE) -> None:
    """Draw a line for each library on axes with logarithmic scales, each point with its time."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "tfopt", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    rows = {library: record.rows[f"nothing, {library}"].figures for library in LINES}
    sizes = [int(size.removeprefix("2^")) for size in rows["tfopt"] if "%" not in size]
    by_last = sorted(LINES, key=lambda library: rows[library][f"2^{sizes[-1]}"][1] or 0)
    for library, (name, colour, above) in LINES.items():
        times = [rows[library][f"2^{size}"][1] or 0.0 for size in sizes]
        axes.plot(sizes, times, "o-", color=colour, label=name)
        for size, time in zip(sizes, times, strict=True):
            last = size == sizes[-1]  # where the points lie close together
            beside = (9, 9 * by_last.index(library) - 12)
            axes.annotate(
                in_words(time), (size, time), beside if last else (0, above), color=colour,
                textcoords="offset points", ha="left" if last else "center", fontsize=7,
            )  # fmt: skip
    axes.set(xlabel="float32 elements", ylabel="seconds a step", yscale="log")
    axes.set_xticks(sizes, [f"$2^{{{size}}}$" for size in sizes])
    axes.set_title("A step of Adam on two cores: less is better", fontsize=10)
    axes.margins(0.1, 0.12)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
