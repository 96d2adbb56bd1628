"""What Python code returns to the engine is looked at before C relies on it.

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


def test_every_function_of_odd_operands_on_a_tape() -> None:
    """Arrays of objects, numbers, no axes: what NumPy makes of them may be no array."""
    program = """
        import itertools
        import numpy as np
        import tfopt
        from tfopt.autodiff import ops

        x, z = tfopt.constant([0.3, 0.7]), tfopt.constant(1.0)
        odd = [
            np.array([1, 2], object), np.array([], object), np.array(None), np.array([[1, 2]]),
            np.zeros((0, 2)), np.array(["a", "b"]), 1, (), [], "1", b"2", 2.5,
        ]
        calls = [(x,), (z,), *((x, o) for o in odd), *((o, x) for o in odd)]
        keywords = [{}, {"axis": ()}, {"axis": 0}, {"weights": odd[0]}, {"initial": None}]
        done = 0
        for function in (*ops.UFUNCS, *ops.FUNCTIONS):
            if getattr(function, "__name__", "").startswith("save"):
                continue
            for args, named in itertools.product(calls, keywords):
                with tfopt.GradientTape() as tape:
                    tape.watch([x, z])
                    try:
                        y = function(*args, **named)
                    except Exception:
                        continue
                done += 1
                made = [leaf for leaf in tfopt.core.nest.flatten(y) if type(leaf) is tfopt.Tensor]
                try:
                    tape.gradient(made, [x, z])
                except Exception:
                    pass
        print(done)
    """
    assert int(alone(program)) > 1000


def test_what_the_protocol_is_called_with() -> None:
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
