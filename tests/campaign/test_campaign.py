"""The campaign of faults in short, and that it sees what it looks for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign import (
    check,
    clusters,
    crowds,
    damaged_files,
    digests,
    extremes,
    failing,
    failing_disks,
    page,
    power_losses,
    programs,
    recording,
    refusals,
    runner,
    storms,
    updates,
)
from campaign.check import CHECKS, Case, Check
from campaign.interrupted_calls import Target
from tfopt.errors import CheckpointError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults as Linux has them")
#: The others are run by pytest anyway, or take too much memory.
SHORT = [name for name in CHECKS if name not in ("programs", "properties", "sizes")]


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost(name: str) -> None:
    """Half a second of each check, of the same cases each time."""
    result = runner.run_check(name, seed=0, seconds=0.5)
    assert not result.lost, result.lost[0].text
    assert result.tried > 0


def test_the_page_shows_the_last_run() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text) == text


# ---- each check sees a planted fault, and the runner sees what a check's process dies of


def test_a_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_bit(call: Any, package: Any, operands: list[Any]) -> None:
        original(call, package, operands)
        if package is updates.tfopt and operands[0].size:
            operands[0].flat[0] = np.nextafter(operands[0].flat[0], 9, dtype=operands[0].dtype)

    original = updates.drawn_call.__globals__["RuleCall"].carry_out
    monkeypatch.setattr(updates.drawn_call.__globals__["RuleCall"], "carry_out", one_bit)
    with pytest.raises(AssertionError, match="differs at"):
        _first(updates.CHECK, 20)


def test_a_call_that_is_accepted_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FAULTS", (lambda *_: True,))
    with pytest.raises(AssertionError, match="accepted"):
        _first(refusals.CHECK, 5)


def test_a_broken_law_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is printed with fewer events and plainer levels."""
    monkeypatch.setattr(programs, "LAWS", ("toy",))
    with pytest.raises(AssertionError, match="planted fault"):
        _first(programs.CHECK, 50)


def test_a_damaged_file_that_is_loaded_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(AssertionError, match="was loaded"):
        damaged_files._refused(path, damaged_files._saved(path))


def test_a_leak_is_seen() -> None:
    """In a process of its own, which has no memory to give back meanwhile."""
    program = (
        "from campaign import leaks\n"
        "kept = []\n"
        "leaks._steady(lambda: kept.append(bytearray(10_000)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=runner.TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "AssertionError: (" in done.stderr, done.stderr


def test_a_torn_file_is_seen(tmp_path: Path) -> None:
    """A save that overwrites the file in place, on a disk that is full."""
    library = failing.build(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    program = (
        "import errno, sys\n"
        "from pathlib import Path\n"
        "from campaign import failing_disks as disks\n"
        "def save(path, version, model):\n"
        "    with open(path, 'r+b' if path.exists() else 'wb', buffering=0) as file:\n"
        "        for part in range(3):\n"
        "            file.write(bytes([version]) * 100)\n"
        "disks._save, disks._version = save, lambda path: len({*path.read_bytes()}) - 1\n"
        "disks._sweep(Path(sys.argv[1]), 'npz', 'write', errno.ENOSPC)\n"
    )
    (tmp_path / "saved").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "saved")],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(failing_disks.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "torn" in done.stderr, done.stderr


def test_another_digest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dict.fromkeys(digests.selftest.recorded(), "0" * 64)
    monkeypatch.setattr(digests.selftest, "recorded", lambda: wrong)
    with pytest.raises(AssertionError, match="differ on"):
        _first(digests.CHECK, 0)


def test_half_a_call_is_seen() -> None:
    """One that writes one element, and then another."""

    def make() -> Target:
        arrays = np.zeros(2)

        def call() -> None:
            arrays[0] += 1
            sum(range(200_000))
            arrays[1] += 1

        return Target(call, arrays.tolist)

    with pytest.raises(AssertionError, match="neither as before"):
        storms.storm(make, np.random.default_rng(0), times=100)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_unsynced_data_is_found_lost(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that syncs folders alone, or files alone."""
    monkeypatch.chdir(runner.TESTS)
    library = recording.build(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    lost = "S_ISREG" if what == "file" else "S_ISDIR"
    program = (
        "import os, stat, sys\n"
        "from pathlib import Path\n"
        "from campaign import power_losses\n"
        "sync = os.fsync\n"
        f"os.fsync = lambda fd: None if stat.{lost}(os.fstat(fd).st_mode) else sync(fd)\n"
        "power_losses.saving(Path(sys.argv[1]), sys.argv[2])\n"
    )
    done = power_losses.record(library, "x.npz", program)
    said = "version" if what == "folder" else "damaged|version|bytes|header"
    with pytest.raises((AssertionError, CheckpointError), match=said):
        for prefix in range(len(done) + 1):
            power_losses._images("x.npz", done, prefix, (0,))


def test_a_wrong_code_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_code(values: Any, dtype: Any) -> Any:
        block = quantize(values, dtype)
        block[dtype.names[1]][0, 7] ^= 1
        return block

    quantize = extremes.storage.quantize
    monkeypatch.setattr(extremes.storage, "quantize", next_code)
    with pytest.raises(AssertionError):
        extremes._codes(np.random.default_rng(0))


def test_a_number_rounded_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of float16: first to bfloat16."""
    floats = extremes._floats

    class Twice(extremes.optimizers.SGD):
        def apply_gradients(self, pairs: Any) -> Any:
            pairs = [(g.astype(extremes.BFLOAT16).astype(g.dtype), w) for g, w in pairs]
            return super().apply_gradients(pairs)

    monkeypatch.setattr(extremes, "_floats", lambda random, n: floats(random, n) % 1)
    monkeypatch.setattr(extremes, "HALVES", {"float16": extremes.HALVES["float16"]})
    monkeypatch.setattr(extremes.optimizers, "SGD", Twice)
    with pytest.raises(AssertionError, match="float16"):
        extremes._halves(np.random.default_rng(0))


def test_a_change_by_another_thread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(package: Any, rule: str, *operands: Any, **options: Any) -> None:
        update(package, rule, *operands, **options)
        if threading.current_thread() is not threading.main_thread():
            operands[0].flat[0] += 1

    update = crowds.update
    monkeypatch.setattr(crowds, "update", spoiled)
    with pytest.raises(AssertionError):
        crowds._rules(np.random.default_rng(0))


def test_other_bits_of_a_cluster_are_seen() -> None:
    cases = clusters._cases(0)
    (fits,) = (each.__self__ for each in [next(cases).args[1]])  # type: ignore[attr-defined]
    fits.expected = {}
    with fits.client.as_current(), pytest.raises(AssertionError, match="other bits"):
        fits.own(np.random.default_rng(0), 0)
    cases.close()  # type: ignore[attr-defined]


def _first(one: Check, number: int) -> None:
    """Run some cases of a check."""
    for k, case in enumerate(one.cases(0)):
        case()
        if k == number:
            return


def _raises() -> None:
    raise AssertionError("lost")


def _dies() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs() -> None:
    threading.Event().wait()


FATES = (_raises, _dies, _hangs)


def _fated(seed: int) -> Iterator[Case]:
    yield from (lambda: None, FATES[seed], lambda: 5)


def test_a_case_that_raises_dies_or_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the cases after it are tried all the same."""
    planted = Check(_fated, "planted", patience=12.0)
    monkeypatch.setattr(runner, "found", lambda name: planted)
    monkeypatch.setattr(check, "CHECKS", ("test_campaign",))
    for seed, said in enumerate(("lost", "ended with -11", "hangs")):
        result = runner.run_check("planted_faults", seed, seconds=30.0)
        assert [loss.case for loss in result.lost] == [1], result
        assert said in result.lost[0].text
        assert result.tried == (7 if seed == 0 else 6)


#: What `campaign.check.found` looks for in `campaign/planted_faults.py`.
CHECK = Check(_fated, "planted")
