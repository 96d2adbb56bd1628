"""Forks while another thread uses something for the first time, and so imports modules."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfopt

FOLDER = Path(tfopt.__file__).parent

#: A finder that finds nothing, but stops the worker in each import, so that the process is forked
#: in the middle of it; a fork that waits for the import lets it go on after a moment. Each child
#: does what the worker is doing, and a child that still does it after five seconds is ended.
PROGRAM = """
import os, queue, signal, sys, threading, time
import numpy as np, tfopt

what = {what!r}
at, forked = queue.SimpleQueue(), threading.Event()
forked.set()

class Stop:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is worker and forked.is_set():
            forked.clear()
            at.put((doing, name))
            forked.wait(0.02)

def work():
    global doing
    try:
        for doing in what:
            exec(doing, dict(tfopt=tfopt, np=np))
    finally:
        at.put(None)

sys.meta_path.insert(0, Stop())
worker = threading.Thread(target=work)
worker.start()
children = {{}}
while (found := at.get()) is not None and len(children) < 40:
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        sys.meta_path.pop(0)
        exec(found[0], dict(tfopt=tfopt, np=np))
        os._exit(0)
    children[pid] = found
    forked.set()
worker.join()
failed = [found for pid, found in children.items() if os.waitpid(pid, 0)[1]]
print(len(children))
assert not failed, (len(failed), failed[:3])
"""

#: What uses a part of the package for the first time, other than a name of it.
CALLS = [
    "tfopt.raw_ops.ResourceApplyGradientDescent(var=np.ones(9), alpha=.1, delta=np.ones(9))",
    "np.sin(tfopt.Variable(np.ones(3)))",
    "np.fft.fft(tfopt.Variable(np.ones(3)))",
    "tfopt.optimizers.Adam(tfopt.optimizers.schedules.NoisyLinearCosineDecay(.1, 9))"
    ".step(np.ones(9), np.ones(9))",
    "tfopt.optimizers.Adam(storage='bfloat16').step(np.ones(99, 'f'), np.ones(99, 'f'))",
    "tfopt.optimizers.Adam().load_state_dict(tfopt.optimizers.Adam().state_dict())",
    "from tfopt.linear_model import SDCAClassifier; SDCAClassifier().fit([[0.], [1.]], [0, 1])",
]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def forks_during(*what: str) -> int:
    """Return how often a process was forked while a thread did these things."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM.format(what=what)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@needs_fork
def test_children_of_a_first_use_of_each_name() -> None:
    command = [sys.executable, "-c", "import tfopt; print(*{*dir(tfopt)} - {*vars(tfopt)})"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 30
    assert forks_during(*(f"tfopt.{name}" for name in sorted(names))) >= 10


@needs_fork
def test_children_of_first_calls() -> None:
    assert forks_during(*CALLS) >= 5


@needs_fork
def test_children_of_an_import_statement() -> None:
    assert forks_during("import tfopt.optimizers.wrappers.mirror") >= 1


def imports_inside_functions(source: str) -> list[int]:
    found = []
    for outer in ast.walk(ast.parse(source)):
        if isinstance(outer, (ast.FunctionDef, ast.Lambda)):
            for node in ast.walk(outer):
                is_call = isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)
                if isinstance(node, (ast.Import, ast.ImportFrom)) or is_call:
                    found.append(node.lineno)
    return found


def test_imports_inside_functions_are_found() -> None:
    source = "import a\ndef f():\n    import b\n    return importlib.import_module('c')\n"
    assert imports_inside_functions(source) == [3, 4]


def test_imports_inside_functions_use_imported() -> None:
    """But for programs of their own, whose threads import nothing."""
    for path in FOLDER.rglob("*.py"):
        part = path.relative_to(FOLDER).parts
        if part[0] not in ("cli", "selftest") and part != ("imports.py",):
            assert imports_inside_functions(path.read_text()) == [], path
