"""Record the digests that `tfopt selftest` compares with: ``python -m golden.digests``.

They are recorded only if each instruction set of this machine has the same ones, on one thread and
on several, and only those of new cases are new: to change one, take it out of the file first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files

import tfopt
from tfopt import selftest

_PROGRAM = """
import json
from tfopt import selftest, threads
threads.set_num_threads({threads})
print(json.dumps(selftest.digests(offset={threads})))
"""


def run_on(cpu: str, threads: int) -> dict[str, str]:
    """Return the digests of an instruction set and a number of threads."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(threads=threads)],
        env={**os.environ, "TFOPT_CPU": cpu},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> None:
    """Compare, and write the file."""
    if selftest.skipped():
        raise SystemExit(f"here some would be missing: {selftest.skipped()}")
    found = run_on("baseline", 1)
    for cpu in tfopt.kernels.available:
        for threads in (1, 7):
            other = run_on(cpu, threads)
            wrong = [name for name, digest in other.items() if digest != found[name]]
            if wrong:
                raise SystemExit(f"{cpu}, {threads} threads: {wrong} differ")
    path = files(selftest) / selftest.FILE
    before = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    changed = [name for name in before.keys() & found.keys() if before[name] != found[name]]
    if changed:
        raise SystemExit(f"{changed} are no longer what was recorded")
    path.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
