"""Linear models: beside their rivals, and the choice of a solver."""

from __future__ import annotations

from functools import partial
from statistics import median

from records import Record

from page_tables.cells import LINEAR, MS, Cell, Grid, Table

__all__ = ["TABLES"]

#: How names end of which the tables show the rows: the relative gap to be reached.
GAP = ", gap 1e-06"

#: Data with many features, and of objectives what their names have.
SPARSE, NOT_SMOOTH = ("a9a", "w8a", "rcv1_small", "syn"), ("hinge,", "l1 = ")

PARTS = ("sparse", "few features", "hinge and l1")

RIVALS = ("scikit-learn", "snapml", "glum", "celer", "skglm")


def part_of(row: str) -> str:
    if any(word in row for word in NOT_SMOOTH):
        return "hinge and l1"
    return "sparse" if any(f", {data}," in row for data in SPARSE) else "few features"


def rows_of(part: str, record: Record) -> list[str]:
    return [row for row in record.rows if part_of(row) == part and row.endswith(GAP)]


def linear(part: str, record: Record) -> Grid:
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
            for row in rows_of(part, record)
        ],
    )


def linear_in_short(record: Record) -> Grid:
    """The worst, the median and the best ratio over the fits of an objective to a data set."""
    groups: dict[str, list[str]] = {}
    for part in PARTS:
        for row in rows_of(part, record):
            if "ratio" in record.rows[row].figures:
                objective, data, *more = row.removeprefix("linear ").split(", ")
                l1 = " with l1" if any(word.startswith("l1") for word in more) else ""
                groups.setdefault(f"{objective}{l1}, {data}", []).append(row)
    lines: list[list[Cell | str]] = []
    for name, rows in groups.items():
        ratios = {row: record.rows[row].figures["ratio"][1] or 0.0 for row in rows}
        ends = [Cell(end(rows, key=ratios.__getitem__), "ratio", 1, ".2f") for end in (min, max)]
        lines.append([name, str(len(rows)), ends[0], f"{median(ratios.values()):.2f}", ends[1]])
    head = ["objective, data", "fits", "least", "median", "largest"]
    return Grid(head, lines, [row for rows in groups.values() for row in rows])


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
    Table(
        "linear in short",
        "linear",
        f'{LINEAR} "*gap 1e-06"',
        "The rival's CPU time by tfopt's, one thread",
        linear_in_short,
        RIVALS,
    ),
    *(
        Table(
            f"linear, {part}",
            "linear",
            f'{LINEAR} "*gap 1e-06"',
            "CPU time, one thread",
            partial(linear, part),
            RIVALS,
        )
        for part in PARTS
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
