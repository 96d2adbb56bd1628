"""Steps of numbers stored in 16, 8 and 4 bits, beside those in float32."""

from __future__ import annotations

from records import Record

from page_tables.cells import MEASURE, Cell, Grid, Table

__all__ = ["TABLES"]

TO_FLOAT32 = "track_ratio_to_float32"


def halves(record: Record) -> Grid:
    sizes = ("2^12 on one thread", "2^16 on one thread", "2^20", "2^24")
    return Grid(
        [
            "rule",
            "dtype",
            "2^12 elements, one thread",
            "2^16, one thread",
            "2^20, all",
            "2^24, all",
        ],
        [
            [rule, dtype]
            + [Cell(f"{rule}, {dtype}, {size}", TO_FLOAT32, 1, ".2f") for size in sizes]
            for rule in ("gradient_descent", "momentum", "adamax", "adam", "rms_prop")
            for dtype in ("float16", "bfloat16")
        ],
    )


def rows(record: Record) -> Grid:
    widths = (1, 4, 8, 16, 31, 40, 100)
    return Grid(
        ["rule", "dtype", *(f"{width} elements" if width > 1 else "1" for width in widths)],
        [
            [rule, dtype]
            + [Cell(f"{rule}, {dtype}, {width}", TO_FLOAT32, 1, ".2f") for width in widths]
            for rule in ("gradient_descent", "adagrad", "adamax", "adam")
            for dtype in ("float16", "bfloat16")
        ],
    )


def gradients(record: Record) -> Grid:
    sizes = ("2^12 on one thread", "2^16 on one thread", "2^24")
    return Grid(
        ["rule", "gradient", "2^12 elements, one thread", "2^16, one thread", "2^24, all"],
        [
            [rule, gradient]
            + [Cell(f"{rule}, {gradient}, {size}", TO_FLOAT32, 1, ".2f") for size in sizes]
            for rule in ("gradient_descent", "adam")
            for gradient in ("float32, clamped", "bfloat16", "bfloat16, clamped")
        ],
    )


def rounding(record: Record) -> Grid:
    sizes = ("2^16 on one thread", "2^20", "2^24")
    return Grid(
        ["beside", "2^16 elements, one thread", "2^20, all", "2^24, all"],
        [
            [what, *(Cell(size, f"track_ratio_to_{figure}", 1, ".2f") for size in sizes)]
            for what, figure in (("float32", "float32"), ("bfloat16 to nearest", "nearest"))
        ],
    )


def mirrored(record: Record) -> Grid:
    sizes = ("2^20", "2^24")
    return Grid(
        ["optimizer", "2^20 elements", "2^24"],
        [["Adam", *(Cell(size, "track_ratio_to_a_plain_step", 1, ".2f") for size in sizes)]],
    )


def in_blocks(record: Record) -> Grid:
    sizes = ("2^16 on one thread", "2^20 on one thread", "2^20", "2^24")
    return Grid(
        ["rule", "2^16 elements, one thread", "2^20, one thread", "2^20, all", "2^24, all"],
        [
            [rule] + [Cell(f"{rule}, {size}", TO_FLOAT32, 1, ".2f") for size in sizes]
            for rule in ("momentum", "lion", "adam")
        ],
    )


def elsewhere(record: Record) -> Grid:
    return Grid(
        ["library", "2^16 elements", "2^20"],
        [
            [library]
            + [Cell(f"{library}, {size}", "track_speedup", 1, ".0f") for size in ("2^16", "2^20")]
            for library in ("bitsandbytes", "torchao")
        ],
    )


TABLES = (
    Table(
        "halves",
        "halves.Halves",
        f"{MEASURE} halves.Halves",
        "The time by that in float32",
        halves,
    ),
    Table(
        "8 bits",
        "halves.EightBits",
        f"{MEASURE} halves.EightBits",
        "The time by that with float32 slots",
        in_blocks,
    ),
    Table(
        "8 bits elsewhere",
        "halves.EightBitsElsewhere",
        f"{MEASURE} halves.EightBitsElsewhere",
        "Their time by tfopt's for a step of Adam, one thread",
        elsewhere,
        ("bitsandbytes", "torchao", "torch"),
    ),
    Table(
        "4 bits",
        "halves.FourBits",
        f"{MEASURE} halves.FourBits",
        "The time by that with float32 slots",
        in_blocks,
    ),
    Table(
        "16-bit rows",
        "halves.Rows",
        f"{MEASURE} halves.Rows",
        "The time by that in float32, in cache and on one thread",
        rows,
    ),
    Table(
        "16-bit gradients",
        "halves.Gradients",
        f"{MEASURE} halves.Gradients",
        "The time by that with a float32 gradient that is not clamped",
        gradients,
    ),
    Table(
        "stochastic rounding",
        "halves.StochasticRounding",
        f"{MEASURE} halves.StochasticRounding",
        "Adam's time by that of the other",
        rounding,
    ),
    Table(
        "mirrors",
        "halves.Mirrored",
        f"{MEASURE} halves.Mirrored",
        "The time by that of the same step without a copy",
        mirrored,
    ),
)
