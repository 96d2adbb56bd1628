"""Digests of results, computed in a process of its own in one of several ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import json, os, sys
from tfopt import selftest, threads
threads.set_num_threads(int(sys.argv[1]))
names = json.loads(sys.argv[4])
if sys.argv[3] == "fork":
    selftest.digests(["adam", "clip_by_norm"])  # starts threads, which a child has not
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(selftest.digests(names, offset=int(sys.argv[2]))), flush=True)
"""
#: What must not change a bit: threads, an offset, whether after a fork, and the environment.
WAYS: tuple[tuple[int, int, str, dict[str, str]], ...] = (
    (1, 0, "", {}),
    (2, 1, "", {"OMP_DYNAMIC": "true"}),
    (3, 7, "fork", {}),
    (7, 63, "", {"OMP_THREAD_LIMIT": "2", "OMP_WAIT_POLICY": "passive"}),
)


def digests(
    cpu: str, way: tuple[int, int, str, dict[str, str]], names: list[str] | None
) -> dict[str, str]:
    threads, offset, fork, environment = way
    arguments = [str(threads), str(offset), fork, json.dumps(names)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "TFOPT_CPU": cpu, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found
