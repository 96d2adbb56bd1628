"""The suite's property tests on fresh examples; hypothesis shrinks one that fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from campaign.check import Case, Check

TESTS = Path(__file__).resolve().parents[1]
#: What a property test draws with the profile "fresh".
EXAMPLES = 8


def _files() -> list[str]:
    """Return the files with property tests, without those that need TensorFlow or a compiler."""
    found = [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("test_*.py"))
        if re.search(r"^\s*@given", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    return [name for name in found if not name.startswith(("cuda/", "live/"))]


def _tested(name: str, seed: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "hypothesis",
         f"--hypothesis-seed={seed}", name],
        cwd=TESTS,
        env={**os.environ, "HYPOTHESIS_PROFILE": "fresh"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{name}, --hypothesis-seed={seed}: {done.stdout[-3000:]}"
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, f"{name}: no test was run"
    return EXAMPLES * int(passed[1])


def _cases(seed: int) -> Iterator[Case]:
    for number in count():
        fresh = int(np.random.default_rng((seed, number)).integers(2**31))
        for name in _files():
            yield partial(_tested, name, fresh)


CHECK = Check(_cases, "An example of a property test of the suite", patience=900)
