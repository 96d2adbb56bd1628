"""The command: ``python -m campaign [--seconds N] [--seed S] [--only NAME ...] [--out FILE]``."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import tfopt
from campaign.check import CHECKS
from campaign.runner import TESTS, Result, run_check

#: How many losses of a check are printed; all are in the file of results.
DESCRIBED = 5


def _report(results: list[Result], seed: int, seconds: float) -> dict[str, Any]:
    """Return what the page of trust is made of."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=TESTS, capture_output=True, text=True
    )
    return {
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "sets": [*tfopt.kernels.available],
        "seconds": seconds,
        "seed": seed,
        "checks": [result._asdict() for result in results],
    }


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
        for loss in results[-1].lost[:DESCRIBED]:
            print(f"  {loss.again}\n{loss.text}", flush=True)
    if options.out:
        report = json.dumps(_report(results, seed, options.seconds), indent=1)
        options.out.write_text(report + "\n")
    return int(any(result.lost for result in results))


if __name__ == "__main__":
    sys.exit(main())
