"""Arrays that another thread resizes while a call uses them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.clip import scale_call
from tfopt.kernels.update.dense import run
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.sparse_checks import sparse_call


def _shrink(array: np.ndarray) -> None:
    """Resize an array, whoever refers to it: NumPy then frees memory that others may be using."""
    array.resize((1,), refcheck=False)


CALLS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "one variable": lambda w, g: dense_call(kernels["gradient_descent"], (w, g), (0.1,), 0, 1.0),
    "many variables": lambda w, g: many_call(
        kernels["gradient_descent"], ([w], [g]), (0.1,), 0, 1.0
    ),
    "rows": lambda w, g: sparse_call(
        kernels["gradient_descent"], (w, g), np.arange(len(w)), (0.1,), 0, 1.0
    ),
    "clipping": lambda w, g: scale_call([w], [g], 0.5, 1.0, False),
}


@pytest.mark.parametrize("which", CALLS)
@pytest.mark.parametrize("victim", [0, 1], ids=["variable", "gradient"])
def test_arrays_of_a_call_cannot_be_resized(which: str, victim: int) -> None:
    arrays = np.ones(64), np.ones(64)
    call = CALLS[which](*arrays)
    with pytest.raises(ValueError, match="cannot resize"):
        _shrink(arrays[victim])
    run(call)
    del call
    _shrink(arrays[victim])


def test_arrays_of_a_repeated_step_cannot_be_resized() -> None:
    """A step that is kept has their addresses."""
    w, g, optimizer = np.ones(64), np.ones(64), tfopt.optimizers.SGD(0.5)
    for _ in range(3):
        optimizer.step(w, g)
    for array in (w, g):
        with pytest.raises(ValueError, match="cannot resize"):
            _shrink(array)
    optimizer.step(w, g)
    assert (w == -1).all()


RESIZED = """
import sys, threading, time, numpy as np, tfopt
sys.setswitchinterval(1e-5)
box, end, other = [np.zeros(300_000)], time.time() + 1.5, np.ones(300_000)
call = eval("lambda a: " + sys.argv[1])
def resize():
    while time.time() < end:
        try:
            box[0].resize((10,), refcheck=False)
        except ValueError:  # a call is using it
            continue
        box[0] = np.zeros(300_000)
thread = threading.Thread(target=resize)
thread.start()
while time.time() < end:
    try:
        call(box[0])
    except ValueError:
        pass
thread.join()
"""


@pytest.mark.parametrize(
    "call",
    [
        "tfopt.training_ops.apply_gradient_descent(a, other, alpha=0.1)",
        "tfopt.training_ops.apply_gradient_descent(other, a, alpha=0.1)",
        "tfopt.global_norm([a])",
        "tfopt.clip_by_norm(a, 1.0)",
        "tfopt.clip_by_value(a, -1.0, 1.0)",
    ],
)
def test_a_thread_that_resizes_ends_no_process(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESIZED, call], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
