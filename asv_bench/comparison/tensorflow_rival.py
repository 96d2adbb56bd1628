"""TensorFlow: its kernels, called eagerly, and Keras' OptimizerV2 where a rule has no kernel."""

from __future__ import annotations

import os
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from benchmarks.common import OPS, RULES

from comparison.measure import Side
from comparison.rival import Rival, Unavailable
from comparison.works import Clip, Many, Sparse, Work

__all__ = ["rivals", "versions"]

TOLERANCE = 1e-5  # its reciprocal square roots are approximate

#: Rules whose sparse kernel is not deterministic for repeated ids.
_RACES = {
    "adagrad": "with repeated ids not compared: TensorFlow steps them on several threads at once "
    "and loses some of the updates; on one thread it agrees"
}

#: Keras' optimizers that end where a step of ours ends; its Adam steps all rows.
_KERAS = {("adamax", "merged"): "Adamax", ("adam", "catch up"): "Adam"}


@cache
def _tensorflow() -> Any:
    """Return TensorFlow, with its default number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    return tf


def versions() -> dict[str, Any]:
    threads = _tensorflow().config.threading.get_intra_op_parallelism_threads()
    return {
        "tensorflow": _tensorflow().__version__,
        "tensorflow threads": threads or "as many as there are CPUs",
    }


def rivals(work: Work) -> list[Rival]:
    if isinstance(work, Clip):
        name = "tf.linalg.global_norm" if work.way == "norm" else "tf.clip_by_global_norm"
        return [Rival(name, lambda: _clip(work), TOLERANCE, "TensorFlow makes new tensors")]
    if isinstance(work, Many):
        return []
    if isinstance(work, Sparse) and work.way != "op":
        if (work.rule, work.way) not in _KERAS:
            return []
        name = _KERAS[work.rule, work.way]
        return [Rival(f"Keras {name}", lambda: _keras(work, name), TOLERANCE)]
    if work.rule not in OPS:
        raise Unavailable(f"TensorFlow has no op of {work.rule}")
    prefix = "ResourceSparseApply" if isinstance(work, Sparse) else "ResourceApply"
    name = prefix + OPS[work.rule].name
    if not hasattr(_tensorflow().raw_ops, name):
        raise Unavailable(f"TensorFlow has no {name}")
    if isinstance(work, Sparse) and work.rule in _RACES and work.drawn != "distinct":
        return [Rival(name, lambda: _op(work, name), None, _RACES[work.rule])]
    return [Rival(name, lambda: _op(work, name), TOLERANCE)]


def _op(work: Work, name: str) -> Side:
    """Return a call of the kernel with arguments prepared in advance."""
    tf = _tensorflow()
    rule = RULES[work.rule]
    *changed, grad = work.arrays()
    states = [tf.Variable(array) for array in changed]
    arguments = {key: v.handle for key, v in zip(rule.operands[:-1], states, strict=True)}
    for key, value in work.options().items():
        if key in rule.hypers:
            value = tf.constant(value, tf.int64 if isinstance(value, int) else tf.float32)
        arguments[key] = value
    if isinstance(work, Sparse):
        arguments |= {"grad": tf.constant(grad), "indices": tf.constant(work.ids())}
    else:
        arguments[rule.grad] = tf.constant(grad)
    return Side(
        partial(getattr(tf.raw_ops, name), **arguments), lambda: [v.numpy() for v in states]
    )


def _keras(work: Sparse, name: str) -> Side:
    tf = _tensorflow()
    module = import_module(f"tensorflow.python.keras.optimizer_v2.{name.lower()}")
    var, *_, grad = work.arrays()
    variable = tf.Variable(var)
    slices = tf.IndexedSlices(tf.constant(grad), tf.constant(work.ids()))
    opt = getattr(module, name)(learning_rate=np.float32(0.01))
    return Side(
        partial(opt.apply_gradients, [(slices, variable)]),
        lambda: [v.numpy() for v in (variable, *(opt.get_slot(variable, s) for s in "mv"))],
    )


def _clip(work: Clip) -> Side:
    tf = _tensorflow()
    grads = [tf.constant(grad) for grad in work.arrays()]
    limit = work.limits()
    answers: list[Any] = [None]

    def step() -> None:
        if work.way == "norm":
            answers[0] = [tf.linalg.global_norm(grads)]
        else:
            answers[0], _ = tf.clip_by_global_norm(grads, limit())

    return Side(step, lambda: [np.reshape(a.numpy(), -1) for a in answers[0]])
