"""A few calls of every kernel, for compute-sanitizer: python small.py.

With CuPy's own memory pool an overrun would stay inside the pool's memory, so each array gets an
allocation of its own.
"""

from __future__ import annotations

import cupy
import numpy as np
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers

import tfopt
from tfopt.cuda.calls import dense_update, rows_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.kernels import kernels
from tfopt.updates.device_copy import copies_of

cupy.cuda.set_allocator(None)

for rule in RULES:
    apply = getattr(tfopt.training_ops, f"apply_{rule.name}")
    hypers = ordinary_hypers(rule)
    for dtype in ("float32", "float64", "float16"):
        for n in (1, 5, 4097):
            apply(*map(cupy.asarray, arrays_for(rule, (n,), dtype)), **hypers)
            apply(*map(cupy.asarray, arrays_for(rule, (3, n), dtype)), **hypers)
        rows = [arrays_for(rule, (k % 7,), dtype, k) for k in range(30)]
        columns = [[cupy.asarray(a) for a in column] for column in zip(*rows, strict=True)]
        apply(*columns, **hypers)
        if rule.reduction:
            apply(*map(cupy.asarray, arrays_for(rule, (2, 70_001), dtype)), **hypers)
        for inner in ((), (3,), (70,)) if rule in WITH_ROWS else ():
            *variables, grad = map(cupy.asarray, arrays_for(rule, (9, *inner), dtype))
            ids = cupy.asarray(np.array([8, 0, 8, 3, 0, 8, 1, 2, 8]))
            for duplicates in ("sum",) if rule.absent else ("sequential", "sum"):
                apply(*variables, grad, **hypers, indices=ids, duplicates=duplicates)
            if rule.absent:
                given = tuple(hypers[name] for name in rule.hypers)
                how = kernels[rule.name], (*variables, grad), given, 0, ids, "sum", 1.0, True
                run_clipped([rows_update(*how, lazy=True)])
            ids[4] = 9
            apply(*variables, grad, **hypers, indices=ids, check_indices=False)
for dtype in ("float32", "float64", "float16"):
    for n in (1, 5, 4097, 70_001):
        array = cupy.ones(n, dtype)
        tfopt.clip_by_value(array, 0, 0.5)
        tfopt.clip_by_global_norm([array, array[:3], array[:0]], 1.0)
        tfopt.clip_by_global_norm([array], 1.0, use_norm=tfopt.global_norm([array]), out=[array])
        tfopt.raw_ops.L2Loss(t=array)
    table = cupy.ones((7, 300, 5), dtype)
    for axes in (None, [0], [1], [2], [0, 2], []):
        tfopt.clip_by_norm(table, 1.0, axes, nonfinite="skip")

rule = RULES[0]
kernel, hypers = kernels[rule.name], tuple(ordinary_hypers(rule)[h] for h in rule.hypers)
for limits in ({"clipvalue": 0.5}, {"clipnorm": 1.0}, {"clipvalue": 0.5, "global_clipnorm": 1.0}):
    columns = [[cupy.ones(n, "float32") for n in (5, 4097, 0)] for _ in rule.operands]
    whole = dense_update(kernel, tuple(columns), hypers, 0, 1.0)
    table, rows = cupy.ones((9, 3), "float32"), cupy.ones((4, 3), "float32")
    some = rows_update(kernel, (table, rows), hypers, 0, cupy.arange(4), "sum", 1.0, True)
    run_clipped([whole, some], **limits)
for target in ("float32", "float64", "float16"):
    for n in (1, 5, 4097):
        sources = [cupy.ones(k, "float64" if target == "float64" else "float32") for k in (n, 0, 3)]
        made = copies_of(sources, "copies", [np.dtype(target)] * 3, 0.5)
        copies_of(made, "copies", [np.dtype(target)] * 3)
for clip in ({}, {"clipnorm": 1.0}):
    summed = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.Adam(0.1, **clip), 2)
    average = tfopt.optimizers.WeightAverage(tfopt.optimizers.LossScaleOptimizer(summed), 0.9, 2)
    opt = tfopt.optimizers.Mirror(average, "float16")
    variables = [cupy.ones(n, "float32") for n in (1, 5, 4097, 0)]
    table = cupy.ones((9, 3), "float32")
    for _ in range(5):
        rows = tfopt.IndexedSlices(cupy.ones((4, 3), "float32"), cupy.arange(4))
        opt.apply_gradients([(rows, table), *((var.copy(), var) for var in variables)])
    with average.averaged():
        pass
for name in ("LAMB", "AdamMini", "Adafactor"):
    variables = [cupy.ones((7, 500), "float32"), cupy.ones(900, "float16")]
    slices = [
        tfopt.IndexedSlices(cupy.ones((3, *var.shape[1:]), var.dtype), cupy.array([4, 0, 4]))
        for var in variables
    ]
    getattr(tfopt.optimizers, name)().apply_gradients(zip(slices, variables, strict=True))
for n, width in ((5, 3), (100, 64), (100, 1)):
    for how in ({}, {"pooling": "mean"}, {"weights": np.ones(n)}):
        bags = tfopt.Bags(np.arange(n) % 2 * 8, [0, 0, 2, n - 1], 9, **how)
        for dtype in ("float32", "float16"):
            table, opt = cupy.ones((9, width), dtype), tfopt.optimizers.Adagrad()
            for _ in range(3):
                opt.apply_gradients([(bags.gradient(bags.lookup(table)), table)])
tfopt.cuda.synchronize()
print("done")
