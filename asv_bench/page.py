"""Write the tables of the pages of figures from results/*.json, and look for regressions.

Without arguments the tables of docs/performance.md, of the pages with all linear models and
solvers, and of docs/recipes.md are written between their markers, and two pictures of steps are
drawn. ``--check`` compares the files of results with those of a commit instead, and fails if a
ratio has become more than 10 % worse.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeGuard

import page_text
import rows_picture
import step_picture
from page_tables import TABLES, Cell, Grid, Table
from page_text import number
from records import RESULTS, ROOT, Figure, Record

__all__ = ["PAGES", "regressions", "rendered", "written"]

PAGES = tuple(
    ROOT / "docs" / f"{name}.md"
    for name in ("performance", "performance_linear_models", "performance_solvers", "recipes")
)

DASH = "\N{EN DASH}"

#: What an asterisk at a figure means.
BUSY = "\\*: while other programs ran"

#: By which factor a ratio may be worse.
MARGIN = 1.1


def shown(figure: Figure, scale: float, pattern: str = "") -> str:
    """Return a median or, where it is unknown, a range or the least value."""
    low, median, high = (
        None
        if value is None
        else format(value * scale, pattern)
        if pattern
        else number(value * scale)
        for value in figure
    )
    return median or (f"{low}{DASH}{high}" if high else f"≥ {low}")


def known(cell: Cell | str, record: Record) -> TypeGuard[Cell]:
    """Return whether a cell is a figure that has been measured."""
    return (
        isinstance(cell, Cell)
        and cell.row in record.rows
        and cell.figure in record.rows[cell.row].figures
    )


def text_of(cell: Cell | str, record: Record) -> str:
    if isinstance(cell, str):
        return cell
    if not known(cell, record):
        return DASH
    row = record.rows[cell.row]
    text = shown(row.figures[cell.figure], cell.scale, cell.format)
    return f"{text}*" if "busy" in row.labels else text


def origin(run: Mapping[str, Any]) -> str:
    """Return the day and commit of a run, and whether it had changes that are in no commit.

    It is unknown for figures that were typed into a page: they came "in" a commit.
    """
    word = "in" if run["changed"] is None else "at"
    return f"{run['date'][:10]} {word} {run['commit'][:7]}{' with changes' * bool(run['changed'])}"


def rendered(table: Table, record: Record) -> str:
    """Return a table with its caption.

    If rows have been measured on different days, commits or machines, a column says where. Lines
    of which nothing has been measured yet are left out.
    """
    grid: Grid = table.grid(record)
    measured = [line for line in grid.lines if any(known(cell, record) for cell in line)]
    runs = [
        [record.runs[record.rows[cell.row].run] for cell in line if known(cell, record)]
        for line in measured
    ]
    all_runs = [*chain(*runs), *(record.runs[record.rows[row].run] for row in grid.also)]
    machines = sorted({run["machine"] for run in all_runs})
    origins = sorted({origin(run) for run in all_runs})
    head, lines = grid.head, [[text_of(cell, record) for cell in line] for line in measured]
    busy = any(cell.endswith("*") for line in lines for cell in line)
    if len(origins) > 1 or len(machines) > 1:
        head = [*head, "measured"]
        for line, of in zip(lines, runs, strict=True):
            where = {origin(run) + (f", {run['machine']}" * (len(machines) > 1)) for run in of}
            line.append("; ".join(sorted(where)))
    found = {f"{name} {run[name]}" for run in all_runs for name in table.rivals if name in run}
    rivals = [", ".join(sorted(found, key=str.lower))] if found else []
    facts = "; ".join([table.what, *rivals, *origins, *machines, *([BUSY] if busy else [])])
    return f"{page_text.table(head, lines)}\n\n*{facts}:* `{table.command}`"


def written(page: str, records: Mapping[str, Record]) -> str:
    """Return a page with its tables, each between two comments, regenerated."""
    for table in TABLES:
        page = page_text.between(page, table.name, rendered(table, records[table.record]))
    return page


def load() -> dict[str, Record]:
    """Return all records that a table shows."""
    return {table.record: Record.load(table.record) for table in TABLES}


def certain(figure: Figure, more: bool) -> float:
    """Return the median or, where it is unknown, the worst that is known."""
    low, median, high = figure
    value = median if median is not None else low if more or high is None else high
    assert value is not None
    return value


def worse(old: float, new: float, more: bool) -> float:
    """Return by which factor a figure is worse, of which more or less is better."""
    return old / new if more else new / old


def regressions(before: Record, now: Record) -> Iterator[str]:
    """Yield a line for each ratio that is more than 10 % worse in a row that both have."""
    for key, row in now.rows.items():
        if key not in before.rows:
            continue
        for name, figure in row.figures.items():
            better = now.figures[name]["better"]
            old = before.rows[key].figures.get(name)
            if better is None or old is None:
                continue
            more = better == "more"
            if worse(certain(old, more), certain(figure, more), more) > MARGIN:
                yield f"{now.name}: {key}: {name} was {shown(old, 1)}, is {shown(figure, 1)}"


def check(commit: str) -> int:
    """Print the regressions since a commit; return 1 if there are any."""
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        shown_by_git = subprocess.run(
            ["git", "show", f"{commit}:{path.relative_to(ROOT)}"],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        if shown_by_git.returncode == 0:
            before = Record.parse(path.stem, shown_by_git.stdout)
            lines += regressions(before, Record.load(path.stem))
    print("\n".join(lines) or f"no ratio is more than 10 % worse than at {commit}")
    return 1 if lines else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", nargs="?", const="HEAD", metavar="COMMIT", help="default: HEAD")
    commit = parser.parse_args().check
    if commit is not None:
        return check(commit)
    records = load()
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8"), records), encoding="utf-8")
    step_picture.draw(records["busy"])
    rows_picture.draw(records["compare.sparse"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
