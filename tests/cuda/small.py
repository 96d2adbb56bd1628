"""A few calls of every kernel, for compute-sanitizer: python small.py.

With CuPy's own memory pool an overrun would stay inside the pool's memory, so each array gets an
allocation of its own.
"""

from __future__ import annotations

import cupy
import numpy as np
from cases import RULES, arrays_for, ordinary_hypers

import tfopt

cupy.cuda.set_allocator(None)

for rule in RULES:
    apply = getattr(tfopt.training_ops, f"apply_{rule.name}")
    hypers = ordinary_hypers(rule)
    for dtype in ("float32", "float64", "float16"):
        for n in (1, 5, 4097):
            apply(*map(cupy.asarray, arrays_for(rule, (n,), dtype)), **hypers)
        rows = [arrays_for(rule, (k % 7,), dtype, k) for k in range(30)]
        columns = [[cupy.asarray(a) for a in column] for column in zip(*rows, strict=True)]
        apply(*columns, **hypers)
        for inner in ((), (3,), (70,)):
            *variables, grad = map(cupy.asarray, arrays_for(rule, (9, *inner), dtype))
            ids = cupy.asarray(np.array([8, 0, 8, 3, 0, 8, 1, 2, 8]))
            for duplicates in ("sequential", "sum"):
                apply(*variables, grad, **hypers, indices=ids, duplicates=duplicates)
            ids[4] = 9
            apply(*variables, grad, **hypers, indices=ids, check_indices=False)
tfopt.cuda.synchronize()
print("done")
