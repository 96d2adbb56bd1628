"""Run the cases of one check: ``python -m campaign.worker NAME --seed S --seconds N``.

It keeps its place in a file, which tells the case that a process died of, or hangs in.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import sys
import traceback
import warnings
from pathlib import Path
from time import monotonic

import numpy as np

from campaign.check import found

#: A case that is lost is described, but not more often than this.
DESCRIBED = 20


def run(name: str, seed: int, seconds: float, first: int, only: int | None, log: Path) -> None:
    """Run cases from the first one, or one alone, until there are no more or the time is over.

    The log has the number of the case, what has been tried, whether all is done; then those lost.
    """
    place = np.memmap(log, np.int64, "w+", shape=(3,))
    lost: list[tuple[int, str]] = []
    losses = log.with_suffix(".json")
    cases = found(name).cases(seed)  # imports what the check needs, before the time begins
    end = monotonic() + seconds
    for number, case in enumerate(cases):
        if number < first or (only is not None and number != only):
            continue
        place[0] = number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tried = case()
            place[1] += 1 if tried is None else tried
        except Exception:
            place[1] += 1
            lost.append((number, traceback.format_exc(limit=-6)))
            losses.write_text(json.dumps(lost[:DESCRIBED]))
        if (monotonic() > end and place[1]) or only is not None:
            break
    place[2] = 1
    losses.write_text(json.dumps(lost[:DESCRIBED]))


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Run the cases of one check.")
    parser.add_argument("name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--log", type=Path, required=True)
    faulthandler.register(signal.SIGUSR1)  # what a process that hangs is asked before it is killed
    run(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
