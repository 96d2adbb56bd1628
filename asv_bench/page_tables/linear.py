"""Linear models: beside their rivals, and the choice of a solver."""

from __future__ import annotations

from functools import partial
from statistics import median

from records import Record

from page_tables.cells import LINEAR, MS, Cell, Grid, Table

__all__ = ["TABLES"]

#: How names end of which the table shows the rows: the relative gap to be reached.
GAP = ", gap 1e-06"

#: What the names of rows of the parts have.
SPARSE, BOUNDED = ("a9a", "w8a", "rcv1_small", "syn"), ("hinge", "l1 = ")


def part_of(row: str) -> str:
    if any(word in row for word in BOUNDED) and "breast_cancer, C" not in row:
        return "hinge and l1"
    return "sparse" if any(f", {data}," in row for data in SPARSE) else "few features"


def linear(part: str, record: Record) -> Grid:
    rows = [row for row in record.rows if part_of(row) == part and row.endswith(GAP)]
    return Grid(
        ["objective, data", "tfopt, ms", "fastest rival", "its ms", "its time / ours"],
        [
            [
                row.removeprefix("linear ").removesuffix(GAP),
                Cell(row, "ours", MS),
                record.rows[row].labels["rival"],
                Cell(row, "theirs", MS),
                Cell(row, "ratio", 1, ".2f"),
            ]
            for row in rows
        ],
    )


def with_both(record: Record) -> list[str]:
    """Return the rows of solvers that have l1 and l2."""
    return [row for row in record.rows if " of the largest, l2 = 1" in row]


def solvers(record: Record) -> Grid:
    return Grid(
        ["objective, data", "auto takes", "auto, ms", "sdca, ms", "cd, ms", "auto / fastest"],
        [
            [row.replace(" of the largest", ""), record.rows[row].labels["taken"]]
            + [Cell(row, solver, MS) for solver in ("auto", "sdca", "cd")]
            + [Cell(row, "ratio", 1, ".2f")]
            for row in with_both(record)
        ],
    )


def solvers_in_short(record: Record) -> Grid:
    """The medians over the fits of a data set, and the worst of them."""
    of_data: dict[str, list[str]] = {}
    for row in with_both(record):
        data = row.partition(", ")[2].partition(", l1 ")[0]
        of_data.setdefault(data, []).append(row)
    lines: list[list[Cell | str]] = []
    for data, rows in of_data.items():
        ratios = {row: record.rows[row].figures["ratio"][1] or 0.0 for row in rows}
        middle = f"{median(ratios.values()):.2f}"
        worst = max(rows, key=lambda row: ratios[row])
        lines.append([data, str(len(rows)), middle, Cell(worst, "ratio", 1, ".2f")])
    head = ["data", "fits", "median of auto / fastest", "largest"]
    return Grid(head, lines, with_both(record))


TABLES = (
    *(
        Table(
            f"linear, {part}",
            "linear",
            f'{LINEAR} "*gap 1e-06"',
            "CPU time, one thread",
            partial(linear, part),
        )
        for part in ("sparse", "few features", "hinge and l1")
    ),
    Table(
        "solvers in short",
        "solvers",
        f'{LINEAR} --solvers "*l1*l2 = 1*"',
        "CPU time, one thread",
        solvers_in_short,
    ),
    Table(
        "solvers", "solvers", f'{LINEAR} --solvers "*l1*l2 = 1*"', "CPU time, one thread", solvers
    ),
)
