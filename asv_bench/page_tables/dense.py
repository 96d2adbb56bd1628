"""Dense updates in float32: beside a loop in C, torch and TensorFlow."""

from __future__ import annotations

from benchmarks.common import OPS, RULES
from comparison.mapping import TORCH
from records import Record

from page_tables.cells import COMPARE, MEASURE, Cell, Grid, Table

__all__ = ["TABLES"]

PERCENT = "track_percent_of_same_traffic_loop"
SIZES = ("2^12", "2^16", "2^20", "2^26")


def dense(record: Record) -> Grid:
    sizes = ("2^26", "2^16 on one thread")
    return Grid(
        ["rule", "2^26 elements, all threads", "2^16 elements, one thread"],
        [[rule, *(Cell(f"{rule}, {size}", PERCENT, 1, ".0f") for size in sizes)] for rule in RULES],
    )


def instruction_sets(record: Record) -> Grid:
    return Grid(
        ["AdaMax, 2^16 elements, one thread", "times as fast"],
        [
            [
                "the AVX2 build beside the baseline build",
                Cell("all", "track_adamax_baseline_to_v3", 1, ".2f"),
            ],
            [
                "the AVX-512 build beside the AVX2 build, bfloat16",
                Cell("all", "track_adamax_bfloat16_v3_to_v4", 1, ".2f"),
            ],
        ],
    )


def dense_torch(record: Record) -> Grid:
    rules = [rule for rule in RULES if rule in TORCH]
    return Grid(
        ["rule", "torch", *SIZES],
        [
            [rule, f"{entry.way} {entry.optimizer}"]
            + [Cell(f"{rule}, {size} against {entry.label}", "ratio") for size in SIZES]
            for rule in rules
            for entry in [TORCH[rule]]
        ],
    )


def dense_tensorflow(record: Record) -> Grid:
    return Grid(
        ["rule", *SIZES],
        [
            [rule]
            + [Cell(f"{rule}, {size} against ResourceApply{op.name}", "ratio") for size in SIZES]
            for rule, op in OPS.items()
        ],
    )


TABLES = (
    Table(
        "dense",
        "dense.Bandwidth",
        f'{MEASURE} dense.Bandwidth --only "*, 2^26" "*, 2^16 on one thread"',
        "In percent of the loop's speed",
        dense,
    ),
    Table(
        "instruction sets",
        "instruction_sets.InstructionSets",
        f"{MEASURE} instruction_sets",
        "The second build's time by the first's",
        instruction_sets,
    ),
    Table(
        "dense, torch",
        "compare.dense",
        f'{COMPARE} --only ", 2^[12][026] against torch"',
        "torch's time by tfopt's",
        dense_torch,
        ("torch",),
    ),
    Table(
        "dense, TensorFlow",
        "compare.dense",
        f'{COMPARE} --only ", 2^[12][026] against ResourceApply"',
        "TensorFlow's time by tfopt's",
        dense_tensorflow,
        ("tensorflow",),
    ),
)
