"""The digests of results do not depend on threads, instruction sets and the like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign.shared_state import results
from common.selftest_digests import WAYS, digests

import tfopt
from tfopt import cli, selftest
from tfopt.selftest import cases, inputs


def test_each_case_is_recorded() -> None:
    assert selftest.recorded().keys() == cases.CASES.keys()
    assert len({*selftest.recorded().values()}) == len(cases.CASES)
    assert not selftest.skipped()


@pytest.mark.parametrize("k", range(max(len(WAYS), len(tfopt.kernels.available))))
def test_digests_are_the_recorded_ones(k: int) -> None:
    """All of them, in each way and on each instruction set; the campaign tries the other pairs."""
    sets = tfopt.kernels.available
    assert digests(sets[k % len(sets)], WAYS[k % len(WAYS)], None) == selftest.recorded()


def test_settings_are_restored_and_errors_are_not_printed() -> None:
    for flush in (False, True):
        tfopt.set_flush_denormals(flush)
        selftest.digests(["gradual underflow", "flushed denormals"])
        assert tfopt.get_flush_denormals() is flush


# ---- numbers: those of no generator that may change


def test_calls_of_several_threads_take_turns() -> None:
    """One that flushes denormals would do so for the others, and set what it found for good."""
    names = ["flushed denormals", "adam", "gradual underflow", "adamax"]
    expected = [selftest.recorded()[name] for name in names]
    for flush in (False, True):
        tfopt.set_flush_denormals(flush)
        found = results([lambda name=name: selftest.digests([name])[name] for name in names])
        assert found == expected
        assert tfopt.get_flush_denormals() == flush


def test_numbers_are_those_of_splitmix64() -> None:
    """Its first outputs from the state 0, as published."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert inputs._hashes(0, 4).tolist() == first
    assert inputs._hashes(2, 2).tolist() == first[2:]


def test_no_generator_of_numpy_is_used() -> None:
    for path in Path(selftest.__file__).parent.glob("*.py"):
        assert "np.random" not in path.read_text(encoding="utf-8")


def test_numbers_differ_and_arrays_lie_where_they_should() -> None:
    a, b = (inputs.ordinary(name, (1000,), np.float64) for name in "ab")
    assert np.unique(a).size > 990 and (a != b).mean() > 0.99
    assert np.abs(a).max() <= 8 and abs(a.mean()) < 0.3 and (a < 0).mean() > 0.4
    few = inputs.mixed("a", (20_000,), np.float32)
    assert np.isnan(few).any() and np.isinf(few).any() and 0.98 < np.isfinite(few).mean() < 1
    tiny = np.abs(inputs.mixed("a", (20_000,), np.float32, denormal=True))
    assert 0.2 < (tiny < np.finfo(np.float32).tiny).mean() < 0.6
    for offset in (0, 1, 63):
        placed = inputs.placed(a, offset)
        assert placed.ctypes.data % 64 == offset * 8 % 64 and (placed == a).all()


# ---- what differs is found


def one_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a case have another result, in the last bit of the last element of one array."""
    case = cases.CASES[name]

    def changed(offset: int) -> Any:
        *arrays, last = case(offset)
        bits = np.array(last, ndmin=1)
        bits.view(f"u{bits.itemsize}").reshape(-1)[-1] ^= 1
        yield from [*arrays, bits]

    monkeypatch.setitem(cases.CASES, name, changed)


@pytest.mark.parametrize("name", ["adam", "bfloat16", "sdca_fprint", "clip_by_norm"])
def test_one_bit_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_bit(name, monkeypatch)
    assert selftest.digests([name])[name] != selftest.recorded()[name]


def test_the_payload_of_a_nan_is_not_seen() -> None:
    quiet = np.array([1.0, np.nan])
    other = quiet.copy()
    other.view("u8")[1] ^= (1 << 63) | 5
    assert selftest._digest([quiet]) == selftest._digest([other])
    assert selftest._digest([quiet]) != selftest._digest([np.array([1.0, 0.0])])
    assert selftest._digest([quiet]) != selftest._digest([quiet.astype("f4")])
    assert selftest._digest([np.zeros(1)]) != selftest._digest([-np.zeros(1)])


def test_a_missing_gpu(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(tfopt.cuda, "why_not", lambda: "there is no CUDA device")
    assert cli.main(["selftest", "--gpu"]) == 1
    assert capsys.readouterr().err == "there is no GPU to test: there is no CUDA device\n"


def test_cases_that_cannot_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="there is no case 'adan'"):
        selftest.digests(["adan"])
    for offset in (-1, 64):
        with pytest.raises(tfopt.InvalidArgumentError, match="offset"):
            selftest.digests([], offset=offset)
    monkeypatch.setattr(cases, "find_spec", lambda name: None)
    monkeypatch.setattr(cases, "_can_flush", lambda: False)
    assert {*selftest.skipped()} == {"bfloat16", "stochastic rounding", "flushed denormals"}
    with pytest.raises(tfopt.InvalidArgumentError, match="ml_dtypes is not installed"):
        selftest.digests(["bfloat16"])


# ---- the command


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("adamax", "sdca_fprint", "clip_by_norm")
    for name in [*cases.CASES]:
        if name not in names:
            monkeypatch.delitem(cases.CASES, name)


@pytest.mark.usefixtures("few")
def test_the_command_lists_its_comparisons(capsys: pytest.CaptureFixture[str]) -> None:
    tfopt.threads.set_num_threads(2)
    assert cli.main(["selftest"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["instruction set"].strip() == tfopt.kernels.cpu
    for threads in (1, 2, 3):
        assert lines[f"threads: {threads}"].strip() == "3 of 3 digests are the recorded ones"
    assert cli.main(["selftest", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["compared"] == {"1": 3, "2": 3, "3": 3} and shown["differing"] == {}
    assert tfopt.threads.get_num_threads() == 2


@pytest.mark.usefixtures("few")
def test_the_command_names_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_bit("adamax", monkeypatch)
    tfopt.threads.set_num_threads(1)
    assert cli.main(["selftest"]) == 1
    out = capsys.readouterr().out
    assert "2 of 3 digests are the recorded ones" in out
    assert "adamax                      differs on threads: [1, 3]" in out
    assert cli.main(["selftest", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differing"] == {"adamax": [1, 3]}


@pytest.mark.usefixtures("few")
def test_the_command_lists_skipped_cases(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cases.CASES, "bfloat16", cases._bfloat16)
    monkeypatch.setattr(cases, "find_spec", lambda name: None)
    assert cli.main(["selftest"]) == 0
    assert "skipped, for ml_dtypes is not installed" in capsys.readouterr().out
