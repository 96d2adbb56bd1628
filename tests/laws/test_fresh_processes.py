"""Whatever comes first in a process works: what is imported late is imported by anything.

Each example of a docstring and some programs of each law are the first thing of a process that has
imported NumPy alone. Such processes are forked, except those of modules that start others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from common.documented import examples, modules

import tfopt
import tfopt_ref
from laws import law as laws

COMMAND = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("fresh_process.py"))]
#: Modules that start processes, or are for those that others start.
SPAWNED = ("tfopt.cli", "tfopt.dask", "tfopt.mpi", "tfopt.ray")
#: Of each law.
PROGRAMS = 2
EXAMPLES = {
    test.name: {"module": module.__name__, "name": test.name, "text": test.docstring}
    for module in modules(tfopt) + modules(tfopt_ref)
    for test in examples(module)
}
Job = dict[str, str]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture(scope="module")
def forked() -> Iterator[Callable[[Job], None]]:
    """Carry out a job in a process that is forked."""
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as server:
        assert server.stdin is not None and server.stdout is not None

        def run(job: Job) -> None:
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            done = json.loads(server.stdout.readline())
            assert done["code"] == 0, done["said"]

        yield run
        server.stdin.close()


def spawned(job: Job) -> None:
    """Carry out a job in a process of its own from its start."""
    done = subprocess.run(
        [*COMMAND, "--once"],
        input=json.dumps(job),
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_comes_first(name: str, forked: Callable[[Job], None]) -> None:
    job = EXAMPLES[name]
    (spawned if job["module"].startswith(SPAWNED) else forked)(job)


@pytest.mark.parametrize("number", range(PROGRAMS))
@pytest.mark.parametrize("name", laws.LAWS)
def test_a_program_of_a_law_comes_first(
    name: str, number: int, forked: Callable[[Job], None]
) -> None:
    if not laws.can_be_tried(name):
        pytest.skip(f"it needs {' and '.join(laws.NEEDS[name])}")
    law = laws.found(name)
    draw = laws.drawn(law, np.random.default_rng([number, 1]))
    forked({"program": law.program(draw)})


def test_a_failure_is_seen(forked: Callable[[Job], None]) -> None:
    for run in (spawned, forked):
        with pytest.raises(AssertionError, match="planted"):
            run({"program": "raise ValueError('planted')"})
        with pytest.raises(AssertionError, match=r"Got:\n +2"):
            run({"module": "tfopt", "name": "wrong", "text": ">>> 1 + 1\n3\n"})
    forked({"program": "import sys\nassert 'numpy' in sys.modules and 'tfopt' not in sys.modules"})
