"""What Python code returns to the engine is looked at before C relies on it.

The calls are made in a process of their own, since what is wrong here ends it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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


#: What a gradient may be for an input of shape (2, 3): what is taken has its shape.
GRADIENTS = [
    "np.ones(())", "np.ones(7)", "np.ones((500, 500))", "np.ones((3, 2))", "np.ones((0, 3))", "3",
    "np.float64(3)", "None", "'text'", "object()", "[None]", "{}", "np.array(None)", "b'12'",
    "np.ones((2, 3), 'U5')", "np.ones((2, 3), int)", "np.ones((2, 3)) * 1j", "np.ones((2, 3)) > 0",
    "np.zeros((2, 3), 'M8[s]')", "tfopt.Variable(np.ones((2, 3)))", "tfopt.Variable(np.ones(3))",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0])", "tfopt.IndexedSlices(np.ones((1, 3)), [2])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [-1])", "tfopt.IndexedSlices(np.ones((1, 2)), [0])",
    "tfopt.IndexedSlices(np.ones(3), 0)", "tfopt.IndexedSlices(np.ones((2, 3)), [0])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0], (2, 3))", "tfopt.IndexedSlices([], [])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0], (9, 3))", "tfopt.IndexedSlices('ab', [0.5])",
    "tfopt.IndexedSlices(np.ones((1, 3)), np.array([0], np.uint8), (2, 3))",
]  # fmt: skip


@pytest.mark.parametrize("how", ["registered", "overriding", "custom", "custom with a variable"])
def test_gradients_that_users_return(how: str) -> None:
    """Each is refused, or the gradient of a source of shape (2, 3) has that shape and dtype."""
    program = f"""
        import numpy as np
        import tfopt

        returned = None
        how = {how!r}
        v = tfopt.Variable(np.ones((2, 3)))

        @tfopt.RegisterGradient("Odd")
        @tfopt.RegisterGradient("nan_to_num_by_a_test")
        def odd(op, g):
            return returned

        @tfopt.custom_gradient
        def custom(x):
            return x * 1.0, lambda g: returned

        @tfopt.custom_gradient
        def with_variable(x):
            return x * v, lambda g, variables: (g, [returned])

        def f(x):
            if how == "registered":
                op = tfopt.core.engine.Op("nan_to_num_by_a_test", np.nan_to_num)
                return tfopt.core.engine.apply(op, (x,))
            if how == "overriding":
                with tfopt.gradient_override_map({{"square": "Odd"}}):
                    return np.square(x)
            return custom(x) if how == "custom" else with_variable(x)

        befores = [lambda x: x * 1.0, lambda x: x[:2], lambda x: np.sum(x[None], axis=0),
                   lambda x: np.mean(x[:, None], axis=1), lambda x: np.take(x, [0, 1], axis=0)]
        x = tfopt.constant(np.arange(6.0).reshape(2, 3))
        taken = 0
        for text in {GRADIENTS!r}:
            returned = eval(text)
            for before in befores:
                with tfopt.GradientTape() as tape:
                    tape.watch(x)
                    y = f(before(x))
                try:
                    grads = tape.gradient(y, [x, v])
                except (ValueError, TypeError):
                    continue
                taken += 1
                for g in grads:
                    if g is not None:
                        dense = np.asarray(g)
                        assert dense.shape == (2, 3) and dense.dtype == x.dtype, (text, g)
        print(taken)
    """
    assert 0 < int(alone(program)) < len(GRADIENTS) * 5 // 2
