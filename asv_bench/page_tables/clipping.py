"""Clipping and norms."""

from __future__ import annotations

from functools import partial

from records import Record

from page_tables.cells import COMPARE, MEASURE, Cell, Grid, Table

__all__ = ["TABLES"]


def clipping(record: Record) -> Grid:
    calls = {
        "`global_norm`": ("global_norm", 4),
        "`clip_by_global_norm` in place": ("clip in place", 12),
        "the same with nothing to clip": ("nothing to clip", 4),
    }
    return Grid(
        ["call", "bytes per element", "one thread", "all threads"],
        [
            [what, str(size)]
            + [
                Cell(f"{call}, {elements}", "track_percent_of_loop", 1, ".0f")
                for elements in ("2^26 on one thread", "2^26")
            ]
            for what, (call, size) in calls.items()
        ],
    )


def fused_clipping(record: Record) -> Grid:
    return Grid(
        ["AdaMax, 2^24 elements, with", "times as long"],
        [
            [f"`{clip}`", Cell(clip, "track_ratio_to_unclipped", 1, ".2f")]
            for clip in ("clipvalue", "clipnorm", "global_clipnorm")
        ],
    )


def norm_rivals(norm: str, clip: str, record: Record) -> Grid:
    works = (("global norm", norm), ("clip by norm", clip), ("norm within limit", clip))
    return Grid(
        ["tensors", "norm", "clipped", "within the limit"],
        [
            [shape, *(Cell(f"{work}, {shape} against {rival}", "ratio") for work, rival in works)]
            for shape in ("1000 x 64", "1000 x 1000", "1 x 2^20", "1 x 2^26")
        ],
    )


TABLES = (
    Table(
        "clipping",
        "clipping.Bandwidth",
        f'{MEASURE} clipping.Bandwidth --only "*, 2^26*"',
        "In percent of the loop's speed, 2^26 elements",
        clipping,
    ),
    Table(
        "clipping, fused",
        "clipping.Fused",
        f"{MEASURE} clipping.Fused",
        "A step's time by that of one without",
        fused_clipping,
    ),
    Table(
        "norms, torch",
        "compare.clipping",
        f'{COMPARE} --only "norm*against torch"',
        "torch's time by tfopt's",
        partial(norm_rivals, "torch get_total_norm", "torch clip_grad_norm_"),
        ("torch",),
    ),
    Table(
        "norms, TensorFlow",
        "compare.clipping",
        f'{COMPARE} --only "norm*against tf."',
        "TensorFlow's time by tfopt's",
        partial(norm_rivals, "tf.linalg.global_norm", "tf.clip_by_global_norm"),
        ("tensorflow",),
    ),
)
