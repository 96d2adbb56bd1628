"""Updates of some rows of a table, and learning from streams."""

from __future__ import annotations

from benchmarks.sparse import LOOKUPS
from records import Record

from page_tables.cells import COMPARE, MEASURE, MS, Cell, Grid, Table

__all__ = ["TABLES"]

#: Words of a table for a work's name in the comparison, and the rival.
ROWS = {
    "Adagrad, repeated rows": ("adagrad, 100k zipf", "ResourceSparseApplyAdagrad"),
    "Adagrad, distinct rows": ("adagrad, 100k distinct", "ResourceSparseApplyAdagrad"),
    "FTRL, repeated rows": ("ftrl, 100k zipf", "ResourceSparseApplyFtrl"),
    "AdaMax, gradients of a row summed": ("adamax, 100k zipf merged", "Keras Adamax"),
    "AdaMax, the same": ("adamax, 100k zipf merged", "torch SparseAdam"),
    "Adam, gradients of a row summed": ("adam, 100k zipf merged", "torch SparseAdam"),
    'Adam, `sparse="catch_up"`': ("adam, 100k zipf catch up", "Keras Adam"),
}


def sparse_rivals(record: Record) -> Grid:
    works = {what: (f"{work} of 1M x 32", rival) for what, (work, rival) in ROWS.items()}
    single = "ftrl, 1M distinct of 10M x 1", "ResourceSparseApplyFtrl"
    works["FTRL, a million single numbers of ten million"] = single
    return Grid(
        ["100 000 rows of 32 in a table of a million", "rival", "rows in cache", "in memory"],
        [
            [what, rival]
            + [Cell(f"{work}, {place} against {rival}", "ratio") for place in ("warm", "cold")]
            for what, (work, rival) in works.items()
        ],
    )


def sparse_times(record: Record) -> Grid:
    return Grid(
        ["AdaMax", "ms a step"],
        [[lookup, Cell(f"adamax, {lookup}", "time_step", MS)] for lookup in LOOKUPS],
    )


def streams(record: Record) -> Grid:
    calls = (1, 32, 512, 8192)
    return Grid(
        ["features", *(f"{rows} rows a call" if rows > 1 else "1 row a call" for rows in calls)],
        [
            [f"2^{exponent}"]
            + [Cell(f"{2**exponent}, {rows}", "track_times_the_speed_of_sgd") for rows in calls]
            for exponent in (16, 20, 22)
        ],
    )


TABLES = (
    Table(
        "rows, rivals",
        "compare.sparse",
        f'{COMPARE} --only " of 1*M x "',
        "The rival's time by tfopt's",
        sparse_rivals,
        ("torch", "tensorflow"),
    ),
    Table(
        "rows, times",
        "sparse.Time",
        f'{MEASURE} sparse.Time --only "adamax, *"',
        "All threads",
        sparse_times,
    ),
    Table(
        "streams",
        "streams.Stream",
        f"{MEASURE} streams.Stream",
        "SGDClassifier's time by FTRLClassifier's",
        streams,
        ("scikit-learn",),
    ),
)
