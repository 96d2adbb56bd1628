"""The benchmark of optimizers runs, and reports what it did not time; figures need a GPU."""

from __future__ import annotations

import time

import numpy as np
import pytest
from devices import DEVICE, HostTorch, Torch

if DEVICE.name == "cupy":
    pytest.skip("the device is CuPy's", allow_module_level=True)
torch = pytest.importorskip("torch")

from bench_bags import pooled  # noqa: E402
from bench_optimizers import LISTS, Bench, Step, lookups, optimizers  # noqa: E402

TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()


def milliseconds(step: Step) -> float:
    begin = time.perf_counter()
    step()
    return (time.perf_counter() - begin) * 1000


def filled(*shape: int) -> object:
    return TORCH.to(np.random.default_rng(0).random(shape, np.float32))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # said once a process
def test_all_that_the_library_has_is_timed() -> None:
    bench = Bench(TORCH.to, filled, milliseconds, lambda: None, 1, fused=not TORCH.on_host)
    rows = optimizers(bench, 16, 500, {"1 x 16": [16], "2 x 64": [64, 64]})
    timed = {row["work"] for row in rows if "ms" in row}
    refused = {row["work"]: row["refused"] for row in rows if "ms" not in row}
    for work in (
        "Adam, 4096 elements",
        "AdamW, 4096 elements",
        "Adam, 1 x 16",
        "tfopt.interop.torch.Adam, 2 x 64",
        "Adam, global_clipnorm, 2 x 64",
        "Adagrad, 500 rows of 64, Zipf 1.2",
        "Adam, storage=float32, 65536 elements",
    ):
        assert work in timed, refused.get(work)
    for row in rows:
        assert row.keys() >= {"ms", "host ms"} or row["refused"]
    for work, why in refused.items():
        assert "GPU" in why or "bitsandbytes" in work or work.startswith("torch"), (work, why)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_bags_are_timed() -> None:
    bench = Bench(TORCH.to, filled, milliseconds, lambda: None, 1)
    rows = pooled(bench, 500, 8, 1000)
    assert len(rows) == 24
    for row in rows:
        assert row.keys() >= {"ms", "host ms"} or "torch" in row["work"], row


def test_what_is_timed_is_what_it_says() -> None:
    sizes = LISTS["GPT-2's tensors"]
    assert len(sizes) == 148 and sum(sizes) == 124_439_808
    often = np.bincount(lookups(5_000_000, 100_000, 1.2).astype(np.int64)).max()
    assert 10_000 < often < 30_000  # as 18 002 of the first measurements
    assert np.bincount(lookups(500, 1000, None)).max() < 20
