"""Programs that run on the formulas of the specification: TFOPT_BACKEND=reference."""

from __future__ import annotations

import os
import subprocess
import sys

#: Each rule's steps of whole variables and of rows, in all layouts; prints every bit of the state.
PROGRAM = """
import sys
import numpy as np
import tfopt
from tfopt import IndexedSlices, kernels, optimizers

tfopt.threads.set_num_threads(int(sys.argv[1]))
tfopt.set_flush_denormals(sys.argv[2] == "flush")
random = np.random.default_rng(0)
makers = [
    lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True), lambda: optimizers.Adagrad(0.1),
    lambda: optimizers.Adam(0.1, amsgrad=True, clipvalue=0.5), lambda: optimizers.AdamW(0.1),
    lambda: optimizers.Adamax(0.1), lambda: optimizers.Nadam(0.1, global_clipnorm=1.0),
    lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True), lambda: optimizers.Lion(0.1),
    lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01), lambda: optimizers.Adadelta(0.1),
    lambda: optimizers.GradientAccumulation(optimizers.Adam(0.1, sparse="lazy"), 2),
    lambda: optimizers.LAMB(0.1), lambda: optimizers.LARS(0.1), lambda: optimizers.AdamMini(0.1),
]
for dtype in (np.float16, np.float32, np.float64):
    for make in makers:
        table, strided = (random.standard_normal(n).astype(dtype) for n in ((20, 3), 50))
        column, large = (random.standard_normal(n).astype(dtype) for n in ((9, 1), 70_000))
        optimizer, variables = make(), [table, strided[::2], column, large]
        for k in range(4):
            rows = random.standard_normal((4, 3)).astype(dtype)
            one = IndexedSlices(random.standard_normal((3, 1)).astype(dtype), np.array([5, 0, 5]))
            whole = [random.standard_normal(n).astype(dtype) * 1e-30 for n in (25, 70_000)]
            grads = [IndexedSlices(rows, np.array([3, 3, 0, 9])), whole[0], one, whole[1]]
            optimizer.apply_gradients(zip(grads, variables))
        for array in (table, strided, column, large, *optimizer.get_weights()):
            print(array.tobytes().hex())
print(kernels.backend, file=sys.stderr)
"""


def python(code: str, *arguments: str, backend: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120,
        env={**os.environ, "TFOPT_BACKEND": backend},
    )  # fmt: skip


def test_a_program_gives_the_same_bits() -> None:
    for arguments in (("1", "flush"), ("3", "gradual")):
        kernels, reference = (python(PROGRAM, *arguments, backend=b) for b in ("", "reference"))
        assert (kernels.stderr, reference.stderr) == ("kernels\n", "reference\n")
        assert len(kernels.stdout) > 10_000_000
        assert kernels.stdout == reference.stdout


def test_the_formulas_compute_and_nothing_is_left_to_the_loops() -> None:
    """A formula that is not the rule's any more changes what the rule does."""
    code = """
import tfopt_ref
op = tfopt_ref.training_ops.apply_gradient_descent
op.dense = lambda var, delta, *, alpha: (var + 7,)
import numpy as np, tfopt
w = np.zeros(3)
tfopt.optimizers.SGD(0.5).apply_gradients([(np.ones(3), w)])
print(w)
"""
    assert python(code, backend="reference").stdout == "[7. 7. 7.]\n"
    assert python(code).stdout == "[-0.5 -0.5 -0.5]\n"


def test_denormals_are_treated_as_by_the_drivers() -> None:
    code = """
import numpy as np, tfopt, tfopt_ref
tfopt_ref.set_flush_denormals(False)
for flush in (True, False):
    tfopt.set_flush_denormals(flush)
    w = np.full(1, 1e-310)
    tfopt.optimizers.SGD(0.5).apply_gradients([(np.zeros(1), w)])
    print(tfopt_ref.get_flush_denormals(), w[0])
"""
    assert python(code, backend="reference").stdout == "True 0.0\nFalse 1e-310\n"


def test_there_are_two_backends() -> None:
    done = python("import tfopt", backend="fast")
    assert "ImportError: TFOPT_BACKEND=fast: it must be kernels or reference" in done.stderr
    assert python("import tfopt, sys; print('tfopt_ref' in sys.modules)").stdout == "False\n"
