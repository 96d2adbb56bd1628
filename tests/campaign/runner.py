"""Runs checks in processes of their own, whose death or hanging is a loss, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np

import tfopt
from campaign.check import found

__all__ = ["TESTS", "Loss", "Result", "run_check"]

TESTS = Path(__file__).resolve().parents[1]
#: A check whose process dies goes on after the case that it died of, so often.
DEATHS = 10


class Loss(NamedTuple):
    """A case that was lost: its number, how to run it again, and what was said."""

    case: int
    again: str
    text: str


class Result(NamedTuple):
    """What became of a check: how many things it tried, and the cases that were lost."""

    check: str
    tries: str
    tried: int
    seconds: float
    lost: list[Loss]

    @property
    def line(self) -> str:
        """A line of the report."""
        verdict = f"{len(self.lost)} LOST" if self.lost else "0 lost"
        return f"{self.check:20} {self.tried:>10,} tried, {verdict}, {self.seconds:.0f} s"


def run_check(name: str, seed: int, seconds: float, only: int | None = None) -> Result:
    """Run a check for some time, or one case alone.

    A numerical check is run on each instruction set, on other cases on each.
    """
    everywhere = found(name).numerical and only is None
    sets: list[str | None] = [*tfopt.kernels.available] if everywhere else [None]
    share = seconds / len(sets)
    results = [_run_on(cpu, name, seed + k, share, only) for k, cpu in enumerate(sets)]
    return results[0]._replace(
        tried=sum(result.tried for result in results),
        seconds=sum(result.seconds for result in results),
        lost=[loss for result in results for loss in result.lost],
    )


def _run_on(cpu: str | None, name: str, seed: int, seconds: float, only: int | None) -> Result:
    """Run a check on an instruction set, in a new process after each that died or hung."""
    check, start, tried = found(name), monotonic(), 0
    chosen = {} if cpu is None else {"TFOPT_CPU": cpu}
    again = " ".join([*(f"{key}={value}" for key, value in chosen.items()), "python -m campaign"])
    lost: list[Loss] = []

    def lose(case: int, text: str) -> None:
        lost.append(Loss(case, f"{again} --only {name} --seed {seed} --case {case}", text))

    first = only or 0
    with tempfile.TemporaryDirectory() as folder:
        while len(lost) < DEATHS:
            left = max(0.1, seconds - (monotonic() - start))
            numbers = {"seed": seed, "seconds": left, "first": first, "only": only}
            worker = _Worker(Path(folder), name, numbers, chosen)
            fate = worker.fate(check.patience)
            tried += worker.tried
            for case, text in worker.losses():
                lose(case, text)
            if fate is None:
                break
            lose(worker.case, fate)
            first = worker.case + 1
            if only is not None or monotonic() - start > seconds:
                break
    return Result(name, check.tries, tried, monotonic() - start, lost)


class _Worker:
    """A process that runs the cases of a check, and notes in a file where it is."""

    def __init__(
        self, folder: Path, name: str, numbers: dict[str, float | None], more: dict[str, str]
    ) -> None:
        self._log, self._said = folder / "log", folder / "said"
        self._log.unlink(missing_ok=True)
        options = [f"--{key}={value}" for key, value in numbers.items() if value is not None]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "campaign.worker", name, *options, f"--log={self._log}"],
                cwd=TESTS,
                env={**os.environ, **more},
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def _place(self) -> np.ndarray:
        place = np.fromfile(self._log, np.int64) if self._log.exists() else np.zeros(0)
        return place if len(place) == 3 else np.zeros(3, np.int64)

    @property
    def case(self) -> int:
        """The number of the last case."""
        return int(self._place()[0])

    @property
    def tried(self) -> int:
        """How many things were tried."""
        return int(self._place()[1])

    def losses(self) -> list[tuple[int, str]]:
        """Return the cases that raised, and what."""
        file = self._log.with_suffix(".json")
        if not file.exists():
            return []
        found: list[tuple[int, str]] = json.loads(file.read_text())
        file.unlink()
        return found

    def fate(self, patience: float) -> str | None:
        """Wait for the end; return what became of the process, unless all is well."""
        last, since = self._place(), monotonic()
        while self._process.poll() is None:
            sleep(0.02)
            now = self._place()
            if (now != last).any():
                last, since = now, monotonic()
            elif monotonic() - since > patience:
                self._process.send_signal(signal.SIGUSR1)  # writes where its threads are
                sleep(1)
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                return f"hangs: no end after {patience:.0f} s. {self._words()}"
        code = self._process.returncode
        if code == 0 and self._place()[2] == 1:
            return None
        return f"the process ended with {code}. {self._words()}"

    def _words(self) -> str:
        return self._said.read_text(errors="replace")[-6000:]
