"""The same calls, carried out by TensorFlow. Needs TensorFlow; importing it takes seconds."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from golden.refusals import OPS

from tfopt.rules import OPS as TF_OPS
from tfopt.rules import Rule

__all__ = [
    "apply",
    "apply_gradients",
    "has_sparse",
    "learning_rates",
    "optimizer",
    "refusal",
    "required_tensorflow",
    "sdca_optimizer",
    "tensorflow",
]


@cache
def tensorflow() -> Any:
    """Return TensorFlow, on one thread of the CPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def required_tensorflow() -> Any:
    """Return TensorFlow, or skip the calling module if it is not installed.

    With TFOPT_REQUIRE_TENSORFLOW set nothing is skipped, so the comparison cannot get lost where
    it is meant to run: a missing or broken TensorFlow is an ImportError.
    """
    required = os.environ.get("TFOPT_REQUIRE_TENSORFLOW")
    if not required and importlib.util.find_spec("tensorflow") is None:
        import pytest  # which make.py does without

        pytest.skip(
            "TensorFlow is not installed (TFOPT_REQUIRE_TENSORFLOW=1 makes this an error)",
            allow_module_level=True,
        )
    return tensorflow()


def has_sparse(rule: Rule) -> bool:
    """Return whether TensorFlow has a sparse kernel of the rule."""
    return hasattr(tensorflow().raw_ops, f"ResourceSparseApply{TF_OPS[rule.name].name}")


def constant(value: Any, dtype: Any = None) -> Any:
    """Return a tensor; from an array, because TensorFlow caches scalars and loses the sign of 0."""
    return tensorflow().constant(np.asarray(value, dtype))


def apply(
    rule: Rule,
    variables: Sequence[np.ndarray],
    grad: np.ndarray,
    hypers: Mapping[str, Any],
    flags: Mapping[str, bool],
    indices: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return the variable and its slots after one step of TensorFlow's kernel."""
    tf = tensorflow()
    dtype = variables[0].dtype
    states = [tf.Variable(constant(variable)) for variable in variables]
    arguments = {name: state.handle for name, state in zip(rule.operands[:-1], states, strict=True)}
    for name, value in hypers.items():
        arguments[name] = constant(value, np.int64 if isinstance(value, int) else dtype)
    if indices is None:
        op = getattr(tf.raw_ops, f"ResourceApply{TF_OPS[rule.name].name}")
        arguments[rule.grad] = constant(grad)
    else:
        op = getattr(tf.raw_ops, f"ResourceSparseApply{TF_OPS[rule.name].name}")
        arguments |= {"grad": constant(grad), "indices": constant(indices)}
    op(**arguments, **flags)
    return [state.numpy() for state in states]


def optimizer(name: str, config: Mapping[str, Any], dtype: Any) -> Any:
    """Return TensorFlow's optimizer of a configuration, as tfopt's get_config returns it.

    TensorFlow keeps Python floats in float32 whatever the variables are, so each hyperparameter is
    passed in the dtype of the variables, unless the configuration is to round as TensorFlow does.
    """
    tensorflow()
    module = "gradient_descent" if name == "SGD" else name.lower()
    theirs = import_module(f"tensorflow.python.keras.optimizer_v2.{module}")
    scalar = float if "compat" in config else np.dtype(dtype).type
    typed = {k: scalar(v) if isinstance(v, float) else v for k, v in config.items()}
    typed.pop("compat", None)
    rate = config["learning_rate"]
    if isinstance(rate, dict):
        typed["learning_rate"] = schedule(rate["class_name"], rate["config"], dtype)
    if name == "Nadam":  # whose configuration has another name for it than the constructor
        typed["schedule_decay"] = typed.pop("decay")
    return getattr(theirs, name)(**typed)


def apply_gradients(
    opt: Any, pairs: Sequence[tuple[np.ndarray | tuple[np.ndarray, np.ndarray], Any]]
) -> None:
    """Take a step; a gradient is an array, or (values, indices)."""
    tf = tensorflow()
    opt.apply_gradients(
        [
            (
                tf.IndexedSlices(constant(grad[0]), constant(grad[1]))
                if isinstance(grad, tuple)
                else constant(grad),
                variable,
            )
            for grad, variable in pairs
        ]
    )


def sdca_optimizer(**arguments: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return what SdcaOptimizerV2 does, as arrays; TensorFlow changes a tensor it is given."""
    tf = tensorflow()
    given = {
        name: [tf.constant(a.copy()) for a in value] if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    given["example_state_data"] = tf.constant(np.array(arguments["example_state_data"]))
    state, sparse, dense = tf.raw_ops.SdcaOptimizerV2(**given)
    return state.numpy(), [d.numpy() for d in sparse], [d.numpy() for d in dense]


def schedules() -> Any:
    """Return the module of OptimizerV2's schedules."""
    tensorflow()
    from tensorflow.python.keras.optimizer_v2 import learning_rate_schedule

    return learning_rate_schedule


def schedule(name: str, config: Mapping[str, Any], dtype: Any) -> Any:
    """Return TensorFlow's schedule that computes in a dtype.

    The configuration is tfopt's and complete: TensorFlow computes in the dtype of
    `initial_learning_rate`, and a Python float passes through float32 even then, so every number
    is passed in that dtype.
    """
    scalar = np.dtype(dtype).type

    def typed(value: Any) -> Any:
        if isinstance(value, list):
            return [typed(number) for number in value]
        return scalar(value) if type(value) in (int, float) else value

    typed_config = {key: typed(value) for key, value in config.items() if key != "seed"}
    return getattr(schedules(), name)(**typed_config)


def learning_rates(
    name: str, config: Mapping[str, Any], steps: Sequence[float], dtype: Any
) -> list[float]:
    """Return what TensorFlow's schedule gives at steps, computed in a dtype."""
    scalar = np.dtype(dtype).type
    made = schedule(name, config, dtype)
    return [float(made(scalar(step)).numpy()) for step in steps]


def refusal(op: str, arguments: Mapping[str, Any]) -> str:
    """Return the message with which TensorFlow refuses a call of a ``Resource*`` op."""
    tf = tensorflow()
    given = {name: constant(value) for name, value in arguments.items()}
    for name in ("var", *OPS[op].slots):
        given[name] = tf.Variable(given[name])
    handles = {n: getattr(value, "handle", value) for n, value in given.items()}
    try:
        getattr(tf.raw_ops, op)(**handles)
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    raise AssertionError(f"{op} accepts {arguments}")
