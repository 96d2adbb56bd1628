"""Calls of every public function and method that writes or computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tfopt
from common.cases import ORDINARY, RULES, arrays_for
from tfopt.rules import FORMS, Rule

__all__ = ["MODULES", "NOT_CALLED", "Call", "calls", "memory_of", "public_names"]

ROWS, WIDTH = 4, 3
MODULES = ("training_ops", "raw_ops", "clip_ops", "clip_grads", "sdca_ops")
#: Methods of the classes that write; what they compute has tests of its own.
CLASSES = ("Variable", "SDCAModel")
#: What neither writes nor computes with arrays.
NOT_CALLED = {
    "raw_ops.infer_shapes", "sdca_ops.SdcaResult", "SDCAModel.get_config", "SDCAModel.save",
    "SDCAModel.load", "Variable.value", "Variable.numpy",
}  # fmt: skip


class Call(NamedTuple):
    """A call: `make` returns new arguments by name."""

    name: str  # of the function, as "raw_ops.ApplyAdam", or of the method, as "Variable.assign"
    what: str
    make: Callable[[], dict[str, Any]]
    written: tuple[str, ...]

    def function(self, arguments: dict[str, Any]) -> Callable[..., Any]:
        """Return the function, or the method of the argument `self`."""
        owner, name = self.name.split(".")
        if owner in CLASSES:
            return getattr(arguments["self"], name)
        return getattr(getattr(tfopt, owner), name)


def public_names() -> set[str]:
    """Return the names of all public functions of these modules, and methods of these classes."""
    names = {f"{owner}.{name}" for owner in MODULES for name in getattr(tfopt, owner).__all__}
    classes = [("Variable", tfopt.Variable), ("SDCAModel", tfopt.sdca_model.SDCAModel)]
    for owner, cls in classes:
        names |= {
            f"{owner}.{name}" for name, found in vars(cls).items()
            if not name.startswith("_") and callable(getattr(cls, name))
            and not isinstance(found, property)
        }  # fmt: skip
    return names


# ---- update rules

_KINDS: dict[str, Callable[[list[np.ndarray]], list[Any]]] = {
    "arrays": lambda arrays: arrays,
    "variables": lambda arrays: [*map(tfopt.Variable, arrays[:-1]), arrays[-1]],
    "all variables": lambda arrays: [*map(tfopt.Variable, arrays)],
    "one variable": lambda arrays: [*arrays[:-2], tfopt.Variable(arrays[-2]), arrays[-1]],
    "lists": lambda arrays: [[a, a.copy() + 1] for a in arrays],
    "lists of variables": lambda arrays: [
        *([tfopt.Variable(a), tfopt.Variable(a.copy() + 1)] for a in arrays[:-1]),
        [arrays[-1], arrays[-1] + 1],
    ],
}
#: Another value than the default of each option of an update.
_OPTIONS = {
    "use_nesterov": True,
    "update_slots": False,
    "multiply_linear_by_lr": True,
    "adapts": False,
    "indices": np.array([3, 0, 3]),
    "grad_scale": 0.5,
    "var_scale": 0.25,
    "check_indices": False,
    "use_locking": True,
    "name": "step",
}


def _update(rule: Rule, names: dict[str, str], kind: str, **options: Any) -> Any:
    """Return a factory of the arguments of an update; `names` maps them to those of an op."""

    def make() -> dict[str, Any]:
        values = arrays_for(rule, (ROWS, WIDTH), np.float32)
        if "indices" in options:
            values[-1] = values[-1][:3].copy()
        operands = dict(zip(rule.operands, _KINDS[kind](values), strict=True))
        hypers = {name: ORDINARY[name] for name in rule.hypers}
        given = {**operands, **hypers, **options}
        return {names.get(name, name): value for name, value in given.items()}

    return make


def _updates(owner: str, name: str, rule: Rule, names: dict[str, str]) -> Iterator[Call]:
    """Yield calls of a function for each option and each kind of operands."""
    parameters = inspect.signature(getattr(getattr(tfopt, owner), name)).parameters
    needs_rows = "indices" in parameters and parameters["indices"].default is inspect._empty
    base = {"indices": _OPTIONS["indices"]} if needs_rows else {}
    written = ("var", *rule.slots)
    for kind in _KINDS:
        if not (base and "list" in kind):
            make = _update(rule, names, kind, **base)
            yield Call(f"{owner}.{name}", kind, make, written)
    options: list[dict[str, Any]] = []
    for option, parameter in parameters.items():
        if parameter.default is inspect._empty or option in base:
            continue
        if option == "duplicates":
            for value in ("sequential", "sum", "error"):  # some are refused, by both alike
                options.append({"duplicates": value, "indices": _OPTIONS["indices"]})
        else:
            options.append({option: _OPTIONS[option]})
    for more in options:
        make = _update(rule, names, "variables", **base, **more)
        yield Call(f"{owner}.{name}", " ".join(map(str, more)), make, written)


def _rule_calls() -> Iterator[Call]:
    for rule in RULES:
        yield from _updates("training_ops", f"apply_{rule.name}", rule, {})
    for form in FORMS:
        yield from _updates("raw_ops", form.name, form.rule, {form.rule.grad: form.grad})


# ---- clipping


def _of(kind: str, **given: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a factory of arguments: copies of arrays, as Variables if requested."""

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return [made(each) for each in value]
        if isinstance(value, np.ndarray):
            return tfopt.Variable(value.copy()) if kind == "variables" else value.copy()
        return value

    def make() -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, value in given.items():
            same = name == "out" and isinstance(value, str)  # the name of what is written over
            arguments[name] = arguments[value] if same else made(value)
        return arguments

    return make


T = np.float32([[-3, 0, 4], [1, -2, 0.5]])
INF = np.full_like(T, np.inf)
_OUT = np.zeros_like(T)


_BOUNDS = {"clip_value_min": -1.0, "clip_value_max": np.float32([1, 2, 3])}
_T_LIST = [T, T[0] * 2]
#: What each function of clipping is called with.
CLIP_CALLS: dict[str, list[dict[str, Any]]] = {
    "clip_ops.clip_by_value": [{"t": T, **_BOUNDS, "name": "n"}],
    "clip_ops.clip_by_norm": [
        {"t": T, "clip_norm": 2.0, "name": "n"},
        {"t": T, "clip_norm": np.float32([[1], [2]]), "axes": [1], "nonfinite": "raise"},
        {"t": INF, "clip_norm": 2.0, "nonfinite": "raise"},
    ],
    "clip_ops.clip_by_average_norm": [
        {"t": T, "clip_norm": 0.1, "name": "n"},
        {"t": INF, "clip_norm": 0.1, "nonfinite": "raise"},
    ],
    "clip_ops.global_norm": [
        {"t_list": _T_LIST, "name": "n"},
        {"t_list": _T_LIST, "dtype": np.float64},
    ],
    "clip_ops.clip_by_global_norm": [
        {"t_list": _T_LIST, "clip_norm": 2.0, "name": "n"},
        {"t_list": _T_LIST, "clip_norm": 2.0, "use_norm": 9.0},
        {"t_list": [INF, T[0]], "clip_norm": 2.0, "nonfinite": "raise"},
    ],
    "raw_ops.ClipByValue": [
        {"t": T, "clip_value_min": -1.0, "clip_value_max": 1.0, "name": "n"},
        {"t": T, "clip_value_min": T - 1, "clip_value_max": T - 0.5},
    ],
    "raw_ops.L2Loss": [{"t": T, "name": "n"}],
    "clip_grads.clip_by_value_grad": [{"grad": T, "t": T, **_BOUNDS}],
    "clip_grads.clip_by_norm_grad": [
        {"grad": T, "t": T, "clip_norm": 2.0},
        {"grad": T, "t": T, "clip_norm": np.float32([[1], [2]]), "axes": [1]},
    ],
}


def _clip_calls() -> Iterator[Call]:
    for name, table in CLIP_CALLS.items():
        for k, given in enumerate(table):
            for kind in ("arrays", "variables"):
                yield Call(name, f"{kind} {k}", _of(kind, **given), ())
                if not name.startswith("clip_ops"):
                    continue
                if name == "clip_ops.global_norm":
                    outs: list[Any] = [np.zeros((), given.get("dtype", np.float32))]
                else:
                    outs = ["t_list", [_OUT, _OUT[0]]] if "t_list" in given else ["t", _OUT]
                for out in outs:
                    into = "itself" if isinstance(out, str) else "another"
                    make = _of(kind, **given, out=out)
                    yield Call(name, f"{kind} {k} into {into}", make, ("out",))


# ---- dual coordinate ascent


_SDCA = {
    "sparse_example_indices": [np.array([0, 1, 1])],
    "sparse_feature_indices": [np.array([0, 0, 1])],
    "sparse_feature_values": [np.float32([1, 2, 3])], "dense_features": [np.float32(T[:, :2])],
    "example_weights": np.float32([1, 2]), "example_labels": np.float32([0, 1]),
    "sparse_indices": [np.array([0, 1])], "sparse_weights": [np.float32([0.5, 0])],
    "dense_weights": [np.float32([0, 0.25])], "example_state_data": np.zeros((2, 4), np.float32),
    "loss_type": "logistic_loss", "l1": 0.1, "l2": 1.0, "num_loss_partitions": 1,
    "num_inner_iterations": 1,
}  # fmt: skip
_NO_VARIABLES = ("sparse_example_indices", "sparse_feature_indices", "sparse_indices")


def _sdca(kind: str, **more: Any) -> Callable[[Any], dict[str, Any]]:
    def make() -> dict[str, Any]:
        plain = _of("arrays", **_SDCA, **more)()
        if kind == "variables":
            names = ("sparse_weights", "dense_weights")
            plain |= _of("variables", **{name: _SDCA[name] for name in names})()
        return plain

    return make


def _sdca_calls() -> Iterator[Call]:
    more: dict[str, Any] = {
        "adaptive": False, "name": "n", "seed": 3, "order": [1, 0, 1], "dtype": np.float64,
        "num_threads": 1,
    }  # fmt: skip
    for kind in ("arrays", "variables"):
        yield Call("sdca_ops.sdca_optimizer", kind, _sdca(kind), ())
        yield Call("raw_ops.SdcaOptimizer", kind, _sdca(kind, adaptative=True, name="n"), ())
        yield Call("raw_ops.SdcaOptimizerV2", kind, _sdca(kind, adaptive=True, name="n"), ())
        for name in ("sdca_ops.sdca_shrink_l1", "raw_ops.SdcaShrinkL1"):
            weights = [T[0], np.float64([5, -0.25])]
            make = _of(kind, weights=weights, l1=0.5, l2=1.0, name="n")
            yield Call(name, kind, make, ("weights",))
    for name, value in more.items():
        yield Call("sdca_ops.sdca_optimizer", name, _sdca("arrays", **{name: value}), ())
    for name in ("sdca_ops.sdca_fprint", "raw_ops.SdcaFprint"):
        yield Call(name, "strings", lambda: {"input": ["a", b"bc"], "name": "n"}, ())


# ---- classes


def _variable_calls() -> Iterator[Call]:
    def make(**more: Any) -> Callable[[Any], dict[str, Any]]:
        def made() -> dict[str, Any]:
            half = lambda value: np.asarray(value) / 2 + 1  # noqa: E731
            return {"self": tfopt.Variable(T.copy(), constraint=half), **_of("arrays", **more)()}

        return made

    yield Call("Variable.assign", "", make(value=T * 2), ("self",))
    yield Call("Variable.assign_add", "", make(delta=T * 2), ("self",))
    yield Call("Variable.assign_sub", "", make(delta=T * 2), ("self",))
    yield Call("Variable.constrain", "", make(), ("self",))


_BATCH = {
    "example_ids": ["a", "b"], "example_labels": [0.0, 1.0], "dense_features": [T[:, :2]],
}  # fmt: skip


def _model_calls() -> Iterator[Call]:
    def make(kind: str, steps: int, **more: Any) -> Callable[[Any], dict[str, Any]]:
        def made() -> dict[str, Any]:
            weights = np.full(2, 7.0)
            given = tfopt.Variable(weights) if kind == "variables" else weights
            model = tfopt.sdca_model.SDCAModel(
                [], [given], symmetric_l1_regularization=0.1, num_loss_partitions=2
            )
            for _ in range(steps):
                model.partial_fit(_BATCH, seed=1)
                model.update_weights()
            model.partial_fit(_BATCH, seed=1)
            return {"self": model, "weights": given, **more}

        return made

    for kind in ("arrays", "variables"):
        for seed in (None, 1):
            arguments = {"examples": _BATCH, "seed": seed}
            yield Call("SDCAModel.partial_fit", f"{kind} {seed}", make(kind, 1, **arguments), ())
        yield Call("SDCAModel.update_weights", kind, make(kind, 0), ("weights",))
        yield Call("SDCAModel.approximate_duality_gap", kind, make(kind, 1), ())
        for name in ("predictions", "unregularized_loss", "regularized_loss"):
            yield Call(f"SDCAModel.{name}", kind, make(kind, 1, examples=_BATCH), ())


def calls() -> list[Call]:
    """Return all calls."""
    return [
        *_rule_calls(), *_clip_calls(), *_sdca_calls(), *_variable_calls(), *_model_calls(),
    ]  # fmt: skip


def memory_of(value: Any) -> list[np.ndarray]:
    """Return the arrays that can be reached from an argument."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        return [a for each in value.values() for a in memory_of(each)]
    if isinstance(value, (list, tuple)):
        return [a for each in value for a in memory_of(each)]
    if hasattr(value, "_array"):
        return [value._array]
    if type(value).__name__ == "SDCAModel":
        return [*value._unshrunk_dense, np.float64([value.approximate_duality_gap()])]
    return []
