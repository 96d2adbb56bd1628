"""Values that Python code returns to the engine are checked before C relies on them.

The calls are made in a process of their own, since what is wrong here ends it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def alone(program: str) -> str:
    """Run a program in a process of its own, which has to end by itself; return what it printed."""
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def test_arguments_of_the_array_function_protocol() -> None:
    program = """
        import numpy as np
        import tfopt

        x = tfopt.constant([1.0, 2.0])
        for ufunc in (np.negative, np.add, np.exp, np.frexp):
            for inputs in ((), (np.ones(2),), (np.ones(2), 1.0), (None,), (x, x, x), (x, x, x, x)):
                try:
                    x.__array_ufunc__(ufunc, "__call__", *inputs)
                except TypeError:
                    pass
        try:
            tfopt.core.engine.Operand().shape
        except TypeError:
            print("refused")
    """
    assert alone(program) == "refused\n"
