"""Runs of the command line that are killed: ``python killed.py SEED POINTS ARGUMENT...``.

Prints a line for each point: what is left, and whether the run that was resumed then has written
the file of one that was not killed. A point is a call or a return in tfopt's own code, of a
function of Python or C, so that it may be anywhere: in a step, while a checkpoint is written,
before it gets its name, and after. Other code is not counted, for its calls differ from run to run:
`Thread.start` waits or need not, and `importlib.metadata` reads a folder again if it has changed.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

import tfopt
from tfopt.cli import main

OWN = os.path.join(os.path.dirname(tfopt.__file__), "")
END = 10**9


def run(arguments: list[str], point: int) -> int:
    """Run the command line in a child, which is killed at a point, or at none if it is END.

    Return how many points there were until then: they are counted unless it is 0, for none either,
    which takes several times as long.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        passed = 0

        def count(frame: FrameType, *_: object) -> None:
            nonlocal passed
            passed += frame.f_code.co_filename.startswith(OWN)
            if passed == point:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if point:
            sys.setprofile(count)
        code = main(arguments)
        sys.setprofile(None)
        os.write(writing, str(passed).encode())
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        passed = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if point in (0, END) else -signal.SIGKILL), status
    return int(passed or point)


def sweep(seed: int, points: int, arguments: list[str]) -> None:
    inputs = set(Path.cwd().iterdir())
    total = run(arguments, END)
    expected = Path("model.npz").read_bytes()
    place = random.Random(seed)
    for k in range(points):  # one in each of as many equal parts of the run
        point = place.randint(1 + k * (total - 1) // points, (k + 1) * (total - 1) // points)
        for made in set(Path.cwd().iterdir()) - inputs:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        run(arguments, point)
        left = sorted(path.name for path in set(Path.cwd().iterdir()) - inputs)
        kinds = ["temporary" if name.startswith(".tfopt-") else name for name in left]
        run([*arguments, "--resume"], 0)
        same = Path("model.npz").read_bytes() == expected
        alone = set(Path.cwd().iterdir()) - inputs == {Path.cwd() / "model.npz"}
        print(point, "+".join(kinds) or "nothing", "same" if same and alone else "DIFFERENT")


if __name__ == "__main__":
    importlib.import_module("tfopt.cli.train")  # once for all runs, and no part of any
    sweep(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
