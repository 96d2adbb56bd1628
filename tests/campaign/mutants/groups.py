"""Groups of mutated files: numbers of mutants to draw, and the tests to run.

Of the tests those are run that reach a mutant's line.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["SETS", "Group", "test_files"]


class Group(NamedTuple):
    """Sources, by patterns of files; `share` of 100 mutants are of these."""

    name: str
    share: int
    sources: tuple[str, ...]


_KERNELS = "tfopt/kernels"
_GROUPS = (
    Group(
        "rules",
        20,
        (f"{_KERNELS}/update/rules.pxd", f"{_KERNELS}/update/steps_baseline.pyx"),
    ),
    Group(
        "updates and their checks",
        19,
        (
            f"{_KERNELS}/update/*.pyx",
            f"{_KERNELS}/arrays/*.pyx",
            f"{_KERNELS}/platform/*.pyx",
            "tfopt/variable.py",
            "tfopt/indexed_slices.py",
            "tfopt/storage.py",
        ),
    ),
    Group(
        "norms and clipping",
        11,
        (f"{_KERNELS}/reduce/*.p[yx]*", "tfopt/clip_ops/*.py", "tfopt/clip_grads.py"),
    ),
    Group(
        "linear models and their solvers",
        24,
        (
            f"{_KERNELS}/linear/*.p[yx]*",
            f"{_KERNELS}/tf_sdca/*.p[yx]*",
            "tfopt/sdca_ops/*.py",
            "tfopt/linear_model/*.py",
            "tfopt/linear_model/_*/*.py",
        ),
    ),
    Group(
        "text",
        4,
        (f"{_KERNELS}/text/*.p[yx]*", "tfopt/io/*.py"),
    ),
    Group(
        "checkpoints",
        8,
        (
            "tfopt/checkpoints/*.py",
            "tfopt/core/atomic_write.py",
            "tfopt/optimizers/state/state_dict.py",
            "tfopt/optimizers/state/restoration.py",
        ),
    ),
    Group("optimizers", 8, ("tfopt/optimizers/*/*.py", "tfopt/core/*.py")),
    Group("tapes and functions", 6, ("tfopt/autodiff/**/*.py", "tfopt/autodiff/*.pyx")),
)
_BLOCKS = Group("steps of 8-bit slots", 50, (f"{_KERNELS}/update/block_steps.pxi",))
#: What is mutated, by the instruction set that the tests run on: all that the baseline runs, and
#: what only another set does.
SETS = {
    "baseline": _GROUPS,
    **{
        name: (
            Group("steps of 16 bits", 50, (f"{_KERNELS}/update/half_steps_{name}.pxi",)),
            _BLOCKS,
        )
        for name in ("v3", "v4")
    },
}

#: Folders of tests that look for mutants.
FOLDERS = (
    *("rules", "optimizers", "clip", "autodiff", "linear", "io", "laws", "platform"),
    *("cli", "golden"),
)
#: Tests of clusters, of the command line's processes, of what is built or written, of other
#: libraries; and this one.
LEFT_OUT = (
    *("dask_*", "cli_cluster", "cli_folders", "cli_process", "cli_usage", "package", "docs"),
    *("performance_page", "fewer_bytes_page", "other_libraries", "onnx", "campaign", "mutants"),
)


def test_files(tests: Path) -> list[Path]:
    """Return the test files that are run."""
    files = {path for folder in FOLDERS for path in tests.glob(f"{folder}/test_*.py")}
    out = {path for name in LEFT_OUT for path in tests.glob(f"**/test_{name}.py")}
    return sorted(files - out)
