"""The command: ``python -m campaign [--seconds N] [--seed S] [--only NAME ...] [--out FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np

import tfopt
from campaign.check import CHECKS, found

TESTS = Path(__file__).resolve().parents[1]
#: A check whose process dies goes on after the case that it died of, so often.
DEATHS = 10


class Result(NamedTuple):
    """What became of a check: how many things it tried, and the cases that were lost."""

    check: str
    tries: str
    tried: int
    seconds: float
    lost: list[tuple[int, str]]

    @property
    def line(self) -> str:
        """A line of the report."""
        verdict = f"{len(self.lost)} LOST" if self.lost else "0 lost"
        return f"{self.check:20} {self.tried:>10,} tried, {verdict}, {self.seconds:.0f} s"


def run_check(name: str, seed: int, seconds: float, only: int | None = None) -> Result:
    """Run a check for some time in processes of its own: a new one where one dies or hangs."""
    check, start, tried = found(name), monotonic(), 0
    lost: list[tuple[int, str]] = []
    first = only or 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        while len(lost) < DEATHS:
            left = max(0.1, seconds - (monotonic() - start))
            numbers = {"seed": seed, "seconds": left, "first": first, "only": only, "log": log}
            options = [f"--{key}={value}" for key, value in numbers.items() if value is not None]
            with open(Path(folder, "said"), "w+b") as said:
                worker = subprocess.Popen(
                    [sys.executable, "-m", "campaign.worker", name, *options],
                    cwd=TESTS,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
                fate = _watched(worker, log, check.patience)
                if fate is not None:
                    said.seek(0)
                    fate += said.read().decode(errors="replace")[-2000:]
            place = np.fromfile(log, np.int64) if log.exists() else np.zeros(3, np.int64)
            tried += int(place[1])
            losses = log.with_suffix(".json")
            if losses.exists():
                lost += [(number, text) for number, text in json.loads(losses.read_text())]
                losses.unlink()
            if fate is None:
                break
            lost.append((int(place[0]), fate))
            first = int(place[0]) + 1
            if only is not None or monotonic() - start > seconds:
                break
    return Result(name, check.tries, tried, monotonic() - start, lost)


def _watched(worker: subprocess.Popen[bytes], log: Path, patience: float) -> str | None:
    """Wait for a worker; return what became of it, unless all is well."""
    last, since = b"", monotonic()
    while worker.poll() is None:
        sleep(0.02)
        now = log.read_bytes() if log.exists() else b""
        if now != last:
            last, since = now, monotonic()
        elif monotonic() - since > patience:
            os.killpg(worker.pid, 9)
            worker.wait()
            return f"hangs: no end after {patience:.0f} s. "
    place = np.fromfile(log, np.int64) if log.exists() else np.zeros(3, np.int64)
    if worker.returncode == 0 and len(place) == 3 and place[2] == 1:
        return None
    return f"the process ended with {worker.returncode}. "


def main(arguments: list[str] | None = None) -> int:
    """Run checks, print a line for each, and what was lost; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="in all, shared by the checks")
    parser.add_argument("--seed", type=int, help="of what is drawn; by default another each time")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=CHECKS, metavar="NAME")
    parser.add_argument("--case", type=int, help="one case of a check alone")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    print(f"tfopt {tfopt.__version__} on {tfopt.kernels.cpu}, seed {seed}", flush=True)
    results = []
    for name in options.only:
        share = options.seconds / len(options.only)
        results.append(run_check(name, seed, share, options.case))
        print(results[-1].line, flush=True)
        for number, text in results[-1].lost:
            print(f"  case {number} (--only {name} --seed {seed} --case {number})\n{text}")
    if options.out:
        report: dict[str, Any] = {"date": date.today().isoformat(), "seed": seed}
        report["checks"] = [result._asdict() for result in results]
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(result.lost for result in results))


if __name__ == "__main__":
    sys.exit(main())
