"""Small tensors, lists of tensors, and one-time costs."""

from __future__ import annotations

from benchmarks.small_steps import AROUND, CUSTOM, STEPS
from records import Record

from page_tables.cells import MEASURE, MS, US, Cell, Grid, Table

__all__ = ["TABLES"]


def calls(record: Record) -> Grid:
    return Grid(
        ["16 elements", "µs a call"],
        [
            [rule, Cell(rule, "time_1000_calls_of_16_elements", US / 1000)]
            for rule in ("gradient_descent", "adam", "adamax", "ftrl")
        ],
    )


def refused(record: Record) -> Grid:
    return Grid(
        ["AdaMax, a row out of range", "µs a call"],
        [["a call that raises", Cell("all", "time_1000_index_out_of_range", US / 1000)]],
    )


def lists(record: Record) -> Grid:
    return Grid(
        ["Adam, one call with lists", "ms"],
        [
            [model, Cell(f"adam, {model}", "time_call", MS)]
            for model in ("1000 x 64", "1000 x 1000", "200 x 100 000")
        ],
    )


def small_steps(record: Record) -> Grid:
    return Grid(
        ["Adam", "µs a step"],
        [[what, Cell(what, "time_step", US)] for what in STEPS],
    )


def around(record: Record) -> Grid:
    return Grid(
        ["Adam, one array of 16", "times a plain step"],
        [[what, Cell(what, "track_ratio_to_plain_step")] for what in AROUND],
    )


def beside(record: Record) -> Grid:
    return Grid(
        ["Adam, one array of 16", "times torch's fastest"],
        [["apply_gradients", Cell("all", "track_ratio_to_fastest")]],
    )


def custom(record: Record) -> Grid:
    return Grid(
        ["4 elements", "µs a call"],
        [[what, Cell(what, "time_100_calls", US / 100)] for what in CUSTOM],
    )


def models(record: Record) -> Grid:
    return Grid(
        ["variables", "ms a step"],
        [
            [model, Cell(f"Adam, {model}", "time_apply_gradients", MS)]
            for model in ("1000 x 1000", "200 x 100 000")
        ],
    )


def imports(record: Record) -> Grid:
    return Grid(
        ["import", "times as long"],
        [["`import tfopt` beside `import numpy`", Cell("all", "track_ratio_to_numpy", 1, ".2f")]],
    )


TABLES = (
    Table("calls", "calls.Calls", f"{MEASURE} calls.Calls", "One thread", calls),
    Table("refused", "calls.RefusedCalls", f"{MEASURE} calls.RefusedCalls", "One thread", refused),
    Table("lists", "many.Lists", f'{MEASURE} many.Lists --only "adam, *"', "All threads", lists),
    Table(
        "small steps",
        "small_steps.SmallSteps",
        f"{MEASURE} small_steps.SmallSteps",
        "All threads",
        small_steps,
    ),
    Table(
        "around steps",
        "small_steps.Around",
        f"{MEASURE} small_steps.Around",
        "All threads, in one process",
        around,
    ),
    Table(
        "beside others",
        "small_steps.BesideOthers",
        f"{MEASURE} small_steps.BesideOthers",
        "All threads, in one process",
        beside,
        ("torch",),
    ),
    Table(
        "custom gradients",
        "small_steps.CustomGradients",
        f"{MEASURE} small_steps.CustomGradients",
        "One thread",
        custom,
    ),
    Table(
        "models",
        "many.ManyTensors",
        f'{MEASURE} many.ManyTensors --only "Adam, *"',
        "All threads",
        models,
    ),
    Table("imports", "imports.Import", f"{MEASURE} imports", "In fresh interpreters", imports),
)
