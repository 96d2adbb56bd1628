"""The conditions of a step: threads, busy cores, slots that have decayed."""

from __future__ import annotations

from functools import partial

from records import Record

from page_tables.cells import MEASURE, MS, Cell, Grid, Table

__all__ = ["TABLES"]

SIZES = (14, 16, 20, 24)


def denormals(record: Record) -> Grid:
    return Grid(
        ["rule", "flushed, as usual", "not flushed"],
        [
            [rule]
            + [
                Cell(f"{rule}, {flush}", "track_ratio_to_ordinary_values", 1, ".2f")
                for flush in (True, False)
            ]
            for rule in ("momentum", "adagrad", "adam", "adamax", "rms_prop", "ftrl")
        ],
    )


def threads(record: Record) -> Grid:
    sizes = [1 << exponent for exponent in (14, 16, 18, 20)]
    return Grid(
        ["rule", "steps", *(f"2^{size.bit_length() - 1}" for size in sizes)],
        [
            [rule, state, *(Cell(f"{rule}, {size}", figure, 1, ".2f") for size in sizes)]
            for rule in ("gradient_descent", "adamax", "ftrl")
            for state, figure in (
                ("in a loop", "track_speed_in_a_loop"),
                ("in training", "track_speed_in_training"),
            )
        ],
    )


def busy(what: str, record: Record) -> Grid:
    """The median, or with ", 99 %" that percentile."""
    return Grid(
        ["beside", "library", *(f"2^{exponent}" for exponent in SIZES)],
        [
            [beside, library]
            + [Cell(f"{beside}, {library}", f"2^{exponent}{what}", MS) for exponent in SIZES]
            for beside in ("nothing", "2 programs", "16 programs", "1 like it", "3 like it")
            for library in ("tfopt, 1 thread", "tfopt", "torch", "TensorFlow")
        ],
    )


def busy_fits(record: Record) -> Grid:
    kinds = {"Newton's steps": "newton-cholesky", "visits of rows": "sdca"}
    whats = {"median": "", "99 %": ", 99 %"}
    return Grid(
        ["beside", "fit", *(f"{kind}: {what}" for kind in kinds for what in whats)],
        [
            [beside, library]
            + [
                Cell(f"{beside}, {library}", kind + what, MS)
                for kind in kinds.values()
                for what in whats.values()
            ]
            for beside in ("nothing", "2 programs", "8 programs", "16 programs")
            for library in ("tfopt, 1 thread", "tfopt")
        ],
    )


TABLES = (
    Table(
        "denormals",
        "denormals.Denormals",
        f"{MEASURE} denormals",
        "The time by that on ordinary values, 2^16 elements",
        denormals,
    ),
    Table(
        "threads",
        "threads.Threads",
        f"{MEASURE} threads",
        "One thread's time by that of all",
        threads,
    ),
    Table(
        "busy, medians",
        "busy",
        "python asv_bench/busy.py --seconds 0.4",
        "Medians in ms, Adam",
        partial(busy, ""),
        ("torch", "tensorflow"),
    ),
    Table(
        "busy, slowest",
        "busy",
        "python asv_bench/busy.py --seconds 0.4",
        "99th percentiles in ms, Adam",
        partial(busy, ", 99 %"),
        ("torch", "tensorflow"),
    ),
    Table(
        "busy, fits",
        "busy.fits",
        "python asv_bench/busy.py --fits --seconds 0.5",
        "Times in ms",
        busy_fits,
    ),
)
