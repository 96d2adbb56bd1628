"""Carry out programs and examples, each as the first thing of a process: a program itself.

It reads a job from each line, forks, and says what became of the child. Before that it has imported
NumPy and the standard library alone. With ``--once`` it carries out one job itself.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import sys
import tempfile
import traceback
from typing import Any

import numpy  # noqa: F401  (which every user has imported)


def carry_out(job: dict[str, str]) -> None:
    """Run a program, or an example among the names of its module."""
    if "program" in job:
        exec(compile(job["program"], "<program>", "exec"), {"__name__": "__main__"})
        return
    names = {**vars(importlib.import_module(job["module"])), "__name__": "__main__"}
    test = doctest.DocTestParser().get_doctest(job["text"], names, job["name"], None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    if runner.run(test).failed:
        raise AssertionError("an example has another result")


def _forked(job: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                carry_out(job)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "said": said.read().decode()[-4000:]}


def main() -> None:
    """Carry out jobs until there are no more."""
    if "--once" in sys.argv:
        carry_out(json.load(sys.stdin))
        return
    assert not any(name.partition(".")[0] in ("tfopt", "tfopt_ref") for name in sys.modules)
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
