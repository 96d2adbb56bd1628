"""`tfopt selftest --gpu`: the digests of a GPU are the recorded ones of the host."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from devices import DEVICE

import tfopt
from tfopt import cli, selftest
from tfopt.selftest import gpu


@pytest.fixture(autouse=True)
def _arrays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the arrays be those of the tests' device, which need not be a GPU."""
    if DEVICE.on_host:
        monkeypatch.setattr(gpu, "to_gpu", lambda: DEVICE.to)


@pytest.mark.parametrize("name", gpu.CASES)
def test_digests_are_the_hosts(name: str) -> None:
    assert selftest.digests([name], device="gpu")[name] == selftest.recorded()[name]


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(gpu, "CASES", ("clip_by_norm", "clip_by_value"))
    assert cli.main(["selftest", "--gpu"]) == 0
    assert "on the GPU                  2 of 2 digests are the recorded" in capsys.readouterr().out
    recorded = selftest.recorded() | {"clip_by_norm": "0"}
    monkeypatch.setattr(selftest, "recorded", lambda: recorded)
    assert cli.main(["selftest", "--gpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "on the GPU                  1 of 2 digests are the recorded ones" in lines
    assert "clip_by_norm                differs on the GPU" in lines
    assert cli.main(["selftest", "--gpu", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["compared"] == {"gpu": 2} and report["differing"] == {"clip_by_norm": ["gpu"]}


def test_what_a_gpu_does_not_run() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="'bfloat16' cannot be run on a GPU"):
        selftest.digests(["bfloat16"], device="gpu")
    with pytest.raises(tfopt.InvalidArgumentError, match='device must be "cpu" or "gpu"'):
        selftest.digests([], device="tpu")


def test_arrays_of_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    with pytest.raises(tfopt.InvalidArgumentError, match="needs CuPy, or torch with CUDA"):
        gpu.to_gpu()


def test_the_library_that_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if DEVICE.on_host:
        pytest.skip("it needs a GPU")
    names = [name for name in ("cupy", "torch") if find_spec(name)]
    for name in names:
        monkeypatch.setattr(gpu, "find_spec", lambda asked, name=name: asked == name or None)
        assert type(gpu.to_gpu()(np.ones(3))).__module__.partition(".")[0] == name
