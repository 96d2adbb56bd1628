"""Subinterpreters: one that imports the package works or is refused; the first works on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
try:
    import _interpreters as interpreters  # Python 3.13
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy as np

step = "import numpy as np, tfopt; w = np.ones(3); tfopt.training_ops.apply_gradient_descent("
step += "w, w.copy(), alpha=0.5); assert w.tolist() == [0.5] * 3"
BEFORE
inner = interpreters.create()
if hasattr(interpreters, "exec"):
    failed = interpreters.exec(inner, step)
    said = "" if failed is None else f"{failed.type.__name__}: {failed.msg}"
else:
    try:
        interpreters.run_string(inner, step)
        said = ""
    except interpreters.RunFailedError as error:
        said = str(error)
interpreters.destroy(inner)
exec(step)
print(said)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="private modules, as CPython has them here")
@pytest.mark.parametrize("before", [True, False])
def test_a_subinterpreter_works_or_is_refused(before: bool) -> None:
    """Whether the first interpreter has imported the package or not."""
    program = PROGRAM.replace("BEFORE", "exec(step)" if before else "")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60
    )
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no subinterpreters")
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    assert not said or "ImportError" in said, said
