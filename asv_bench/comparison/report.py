"""The results as text: lines as they arrive, and a report in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from page_text import table

from comparison.mapping import TORCH
from comparison.measure import Spread
from comparison.results import Missing, Result

__all__ = ["HEADER", "markdown", "row"]

HEADER = f"{'work':<58}{'rival':<34}{'ours':>10}{'rival':>10}{'ratio (quartiles)':>24}{'loop':>8}"

_EXPLANATION = """\
*Ours* and *rival* are medians of the time of a step. *Ratio* is the rival's time divided by
tfopt's: the median of the ratios of adjacent measurements, with quartiles; more than 1 means that
tfopt is faster. *Loop* is tfopt's speed in percent of a plain C loop that moves the same data
(`same_traffic.c`); for sparse steps, of moving only the rows with a gradient. For linear models a
step is a complete fit, and the result its objective; there is no loop. *Difference* is the largest
difference between the results, relative to the largest magnitude in an array; the tolerance is in
parentheses. *Busy* marks unreliable measurements, made while other programs took the given share
of the CPUs.
"""
_KINDS = {
    "dense": "Dense variables",
    "sparse": "Sparse updates of tables",
    "many": "Many small variables",
    "clipping": "Clipping",
    "linear": "Linear models",
}


def seconds(value: float) -> str:
    """Return a time with three digits and a unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 0.9995 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(spread: Spread) -> str:
    return f"{number(spread.median)} ({number(spread.low)}-{number(spread.high)})"


def _cells(result: Result) -> list[str]:
    percent = result.percent
    return [
        result.work,
        result.rival,
        seconds(Spread.of(result.ours).median),
        seconds(Spread.of(result.theirs).median),
        ratio(result.ratio),
        "" if percent is None else f"{percent.median:.0f} %",
    ]


def _mark(result: Result) -> str:
    return f" (busy: {result.others:.0%})" if result.busy else ""


def row(result: Result) -> str:
    """Return a line of the table on the terminal."""
    work, rival, ours, theirs, spread, percent = _cells(result)
    text = f"{work:<58}{rival:<34}{ours:>10}{theirs:>10}{spread:>24}{percent:>8}"
    if result.busy:
        text += f"  busy: {result.others:.0%}"
    return text if result.agrees else f"{text}  ANSWERS DIFFER: {result.difference:.1e}"


def _difference(result: Result) -> str:
    if result.difference is None or result.tolerance is None:
        return "other update"
    words = f"{result.difference:.0e} ({result.tolerance:.0e})"
    return words if result.agrees else f"**{words}**"


def torch_table() -> str:
    """Return the torch optimizer with which each rule is compared."""
    rows = [
        [f"`{key.replace(' ', '`, `')}`", f"`{t.optimizer}({t.way}=True)`", t.note]
        for key, t in TORCH.items()
    ]
    return table(["rule", "torch", "the update is"], rows)


def markdown(
    machine: dict[str, Any],
    facts: dict[str, dict[str, Any]],
    results: Sequence[Result],
    missing: Sequence[Missing],
    plot: str | None,
) -> str:
    """Return the whole report."""
    lines = ["# tfopt and its rivals, side by side", "", _EXPLANATION]
    if plot:
        lines += [f"![Ratios and percentages]({plot})", ""]
    differing = [r for r in results if not r.agrees]
    if differing:
        lines += ["**Answers differ** in " + "; ".join(f"{r.work} ({r.rival})" for r in differing)]
        lines += [""]
    for kind, title in _KINDS.items():
        of_kind = [r for r in results if r.kind == kind]
        if of_kind:
            lines += [f"## {title}", ""]
            head = ["work", "against", "ours", "rival", "ratio", "loop", "difference"]
            lines += [table(head, ([*_cells(r), _difference(r) + _mark(r)] for r in of_kind)), ""]
    notes = sorted({f"{r.rule}, {r.rival}: {r.note}" for r in results if r.note})
    if notes:
        lines += ["## How far the updates are the same", "", *(f"- {n}" for n in notes), ""]
    if any(r.library == "torch" for r in results):
        lines += [torch_table(), ""]
    if missing:
        lines += ["## Not compared", ""]
        lines += [f"- {m.library}: {m.what}: {m.why}" for m in missing] + [""]
    lines += ["## Machine", ""]
    lines += [table(["", ""], ([key, str(value)] for key, value in machine.items())), ""]
    lines += ["## Versions and threads", ""]
    for library, known in facts.items():
        own = ", ".join(f"{key} {value}" for key, value in known.items() if key != "optional")
        lines += [f"- Process of {library}: {own}"]
    return "\n".join(lines) + "\n"
