"""Every argument of every public function has an effect on results, or is refused."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers
from common.sdca_cases import call_of
from common.traced_cases import CLIP_CALLS
from scipy import sparse

import tfopt
from laws.silence import Call, bits, outcome, perturbed
from tfopt import autodiff, checkpoints, clip_grads, clip_ops, raw_ops, sdca_ops, training_ops
from tfopt.rules import OPS
from tfopt.scipy import linalg, special, stats
from tfopt.sdca_model import SDCAModel

#: Arguments without another answer, and why.
EXCEPTIONS = {
    "name": "TensorFlow's; names nodes of a graph, of which there are none",
    "use_locking": "is seen by other threads alone; tests/platform/test_locks.py",
    "check_indices": "the host checks all indices; only on a GPU does it cost to look",
    "num_threads": "says how fast; answers do not depend on it (tests/linear/test_sdca_kernel.py)",
    "parallel_iterations": "TensorFlow's; documented as accepted alone",
    "num_inner_iterations": "TensorFlow's; documented as of no effect",
    "reduce_retracing": "TensorFlow's; documented as accepted alone",
    "check_finite": "refuses or does not; tests/autodiff/test_scipy_functions.py",
    "overwrite_b": "SciPy's; an array may be overwritten, and what is found is the same",
    "experimental_use_pfor": "TensorFlow's; documented as accepted alone",
}


#: Of single calls, and why.
EXCEPTIONS_OF = {
    ("adagrad_da", "var"): "the variable is made anew of the slots; nothing of it is read",
    ("adagrad_da", "var_scale"): "as of the variable nothing is read, nothing is scaled",
    ("SDCAModel", "dense_features_weights"): "are written; what they hold before is not read",
    ("batch_jacobian", "unconnected_gradients"): "documented: zeros, as in TensorFlow",
}


def changes(call: Call) -> Iterator[str]:
    """Yield the arguments whose other values change nothing."""
    plain = outcome(call)
    assert plain == outcome(call), "the same arguments give different answers"
    assert plain[:1] != ("refused",), plain
    given = call.arguments()
    for name, parameter in inspect.signature(call.function).parameters.items():
        if name in (*EXCEPTIONS, *call.idle) or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if name in call.others:
            other = call.others[name]
        else:
            other = perturbed(given.get(name, parameter.default))
        if outcome(call, **{name: other}) == plain:
            yield name


def idle_in(name: str) -> tuple[str, ...]:
    return tuple(argument for owner, argument in EXCEPTIONS_OF if owner == name)


def hypers_of(rule: Any) -> dict[str, float]:
    """Return ordinary values; with a base of 1, `power_sign` would be without powers."""
    return ordinary_hypers(rule) | ({"logbase": 0.5} if "logbase" in rule.hypers else {})


# ---- updates


def update_of(rule: Any, indexed: bool) -> Call:
    function = getattr(training_ops, f"apply_{rule.name}")

    def arguments() -> dict[str, Any]:
        given = dict(zip(rule.operands, arrays_for(rule, (5, 3), np.float64), strict=True))
        rows = {"indices": np.array([2, 0, 2, 4])} if indexed else {}
        if indexed:
            given[rule.operands[-1]] = given[rule.operands[-1]][:4].copy()
        return {**given, **hypers_of(rule), **rows}

    others: dict[str, Any] = {
        "duplicates": "error",  # of which "sum" may differ by a rounding alone
        # of the order of rows nothing depends: other rows
        "indices": np.array([1, 0, 1, 3]) if indexed else np.array([1]),
        "lr_power": -0.25,
        "global_step": 5,
        "beta1": 0.1,  # of apply_lion the sign alone
        "epsilon": 2.0,  # of apply_adopt the least divisor
    }
    idle = idle_in(rule.name)
    if not indexed:
        others["duplicates"] = "no such"
    seen = lambda given, _: [given[name] for name in rule.operands[:-1]]  # noqa: E731
    return Call(function, arguments, others, seen, idle)


@pytest.mark.parametrize(
    ("rule", "indexed"),
    [
        (rule, indexed)
        for rule in RULES
        for indexed in ((False, True) if rule in WITH_ROWS else (False,))
    ],
    ids=lambda each: each.name if hasattr(each, "name") else str(each),
)
def test_an_updates_argument_counts(rule: Any, indexed: bool) -> None:
    assert not list(changes(update_of(rule, indexed)))


def test_every_update_is_tried() -> None:
    assert {f"apply_{rule.name}" for rule in RULES} == set(training_ops.__all__)


# ---- TensorFlow's ops by name


def op_of(name: str) -> Call:
    function = getattr(raw_ops, name)
    parameters = inspect.signature(function).parameters
    rule = next(op.rule for op in OPS.values() if name.endswith("Apply" + op.name))
    operands = list(rule.operands)
    if operands[-1] not in parameters:
        operands[-1] = "grad"

    def arguments() -> dict[str, Any]:
        given = dict(zip(operands, arrays_for(rule, (5, 3), np.float64), strict=True))
        if "indices" in parameters:
            given |= {"indices": np.array([2, 0, 2, 4]), "grad": given["grad"][:4].copy()}
        return {**given, **hypers_of(rule)}

    others = {"indices": np.array([1, 0, 1, 3]), "lr_power": -0.25, "global_step": 5}
    seen = lambda given, _: [given[name] for name in operands[:-1]]  # noqa: E731
    return Call(function, arguments, others, seen, idle_in(rule.name))


UPDATES = [name for name in raw_ops.__all__ if "Apply" in name]


@pytest.mark.parametrize("name", UPDATES)
def test_an_ops_argument_counts(name: str) -> None:
    assert not list(changes(op_of(name)))


# ---- other functions


def sdca_arguments() -> dict[str, Any]:
    """Return a call with a group of sparse features and a block of dense ones."""
    for seed in itertools.count():
        given = call_of("logistic_loss", seed)
        if given["sparse_feature_values"] and given["dense_features"] and given["l1"]:
            given["example_weights"] = np.linspace(0.5, 2, 6)
            return {**given, "num_inner_iterations": 2, "num_loss_partitions": 2, "seed": 1}
    raise AssertionError


def sdca_call(function: Any, adaptive: str) -> Call:
    parameters = inspect.signature(function).parameters

    def arguments() -> dict[str, Any]:
        given = sdca_arguments()
        return {name: value for name, value in given.items() if name in parameters} | {
            adaptive: False
        }

    others = {
        "loss_type": "hinge_loss",
        "order": np.array([5, 3, 1, 0, 2, 4]),
        "dtype": np.float64,
        "seed": 2,
        "example_labels": np.ones(6) - sdca_arguments()["example_labels"],
    }
    return Call(function, arguments, others)


VECTOR = np.array([3.0, -4.0, 0.5])
WITH_NAN = np.array([3.0, np.nan])


def clip_call(name: str) -> Call:
    """Return a call with all arguments of the traced ones; `out` is seen by what is written."""
    function = getattr(clip_ops, name)
    given: dict[str, Any] = {}
    for arguments in reversed(CLIP_CALLS[f"clip_ops.{name}"]):
        given |= arguments
    given.pop("name", None)
    outs: dict[str, Any] = {}
    if "out" in inspect.signature(function).parameters:
        if name == "global_norm":
            outs["out"], outs["dtype"] = np.zeros(()), np.float16
        elif "t_list" in given:
            outs["out"] = [np.zeros_like(t) for t in given["t_list"]]
        else:
            outs["out"] = np.zeros_like(given["t"])

    def seen(arguments: dict[str, Any], result: Any) -> Any:
        return [result, arguments.get("out")]

    return Call(function, lambda: dict(given), {**outs, "nonfinite": "other", "axes": [0]}, seen)


def weights_of_model(**given: Any) -> Any:
    """Return what a model with these settings learns."""
    model = SDCAModel(**given)
    batch = {
        "sparse_features": [],
        "dense_features": [np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 1.0]])],
        "example_weights": np.array([1.0, 2.0, 0.5]),
        "example_labels": np.array([1.0, 0.0, 1.0]),
        "example_ids": ["a", "b", "c"],
    }
    model.partial_fit(batch, seed=3)
    model.partial_fit(batch, seed=4)
    model.update_weights()
    return [model.dense_features_weights if hasattr(model, "dense_features_weights") else None,
            given["dense_features_weights"], model.predictions(batch),
            model.regularized_loss(batch)]  # fmt: skip


def tape_outcome(persistent: bool = False, watch_accessed_variables: bool = True) -> Any:
    v = tfopt.Variable(np.array([2.0]))
    with tfopt.GradientTape(persistent, watch_accessed_variables) as tape:
        y = v * v
    found = [tape.gradient(y, v)]
    try:
        found.append(tape.gradient(y, v))
    except RuntimeError:
        found.append("once alone")
    return found


def directed(primals: Any, tangents: Any) -> Any:
    with tfopt.ForwardAccumulator(primals, tangents) as forward:
        y = [np.sum(x**3) for x in primals]
    return [float(dy) for dy in forward.jvp(y, "zero")]


class Taped:
    """Functions of a tape's methods, of fresh tapes each."""

    def __init__(self) -> None:
        self.v, self.w = (tfopt.Variable(np.array([[2.0, 3.0]])) for _ in range(2))
        with tfopt.GradientTape(persistent=True) as self.tape:
            self.y, self.z = self.v * self.v, self.v * 3.0

    def method(self, name: str) -> Call:
        source = "source" if name == "batch_jacobian" else "sources"
        given = {"target": self.y, source: [self.v] if source == "sources" else self.v}
        others = {
            "target": self.z,
            source: [self.w] if source == "sources" else self.w,
            "output_gradients": np.array([[5.0, 7.0]]),
        }
        return Call(getattr(self.tape, name), lambda: dict(given), others)

    def unconnected(self, name: str) -> list[Any]:
        source = "source" if name == "batch_jacobian" else "sources"
        return [
            bits(getattr(self.tape, name)(self.y, **{source: self.w}, unconnected_gradients=kind))
            for kind in ("none", "zero")
        ]


@pytest.mark.parametrize("name", ["gradient", "jacobian", "batch_jacobian"])
def test_a_tapes_methods_arguments_count(name: str) -> None:
    call = Taped().method(name)
    call.others["unconnected_gradients"] = "neither"
    assert not list(changes(call))
    none, zero = Taped().unconnected(name)
    if (name, "unconnected_gradients") not in EXCEPTIONS_OF:
        assert none is None and zero is not None


def traces(func: Any = None, input_signature: Any = None, reduce_retracing: bool = False) -> Any:
    """Return how often a function is traced, and what it returns."""
    count = []

    def body(x: Any) -> Any:
        count.append(1)
        return func(x)

    compiled = tfopt.function(body, input_signature, reduce_retracing)
    return [[compiled(np.ones(n)) for n in (1, 2, 3, 4)], len(count)]


def checked(**given: Any) -> Any:
    """Return the arguments that a function is called with while its gradients are checked."""
    seen: list[Any] = []
    f = given.pop("f")

    def watched(x: Any) -> Any:
        seen.append(bits(np.array(getattr(x, "numpy", lambda: x)())))
        return f(x)

    autodiff.check_grads(watched, **given)
    return seen


@tfopt.custom_gradient
def nearly(x: Any) -> Any:
    """Double a number, with a slope that is not quite two."""
    return 2.0 * x, lambda g: (2.0 + 1e-3) * g


def accepted(order: int = 1, atol: float = 1e-6, rtol: float = 1e-6) -> bool:
    """Return whether the gradient of `nearly` passes for its own."""
    try:
        autodiff.check_grads(nearly, [np.array([1.0])], order=order, atol=atol, rtol=rtol)
    except AssertionError:
        return False
    return True


def test_tolerances_of_a_check_count() -> None:
    assert [accepted(), accepted(atol=0.1), accepted(rtol=0.1)] == [False, True, True]


def variable_of(**given: Any) -> Any:
    """Return what can be seen of a variable after a step."""
    name = given.get("name")
    v = tfopt.Variable(**given)
    with tfopt.GradientTape() as tape:
        y = v * 2.0
    v.constrain()
    return [v, v.name if name else None, tape.gradient(y, v)]


def grown(method: str) -> Call:
    v = tfopt.Variable(np.ones(2))

    def call(**given: Any) -> Any:
        fresh = tfopt.Variable(v.numpy().copy())
        getattr(fresh, method)(**given)
        return fresh

    signature = inspect.signature(getattr(v, method))
    call.__signature__ = signature  # type: ignore[attr-defined]
    return Call(call, lambda: {next(iter(signature.parameters)): np.array([2.0, 5.0])})


def like(function: Any, of: Any) -> Any:
    """Give a function that shows what another does the other's arguments."""
    function.__signature__ = inspect.signature(of)
    return function


MATRIX = np.array([[3.0, -4.0, 0.5], [1.0, 0.25, 2.0]])
TENSOR, SQUARE = tfopt.constant(VECTOR), tfopt.constant([*MATRIX, [0.5, 1.5, -2.0]])


def derived(decorator: Any) -> Call:
    """Return a call that shows what a decorated function returns, and its gradient."""

    def call(f: Any) -> Any:
        x = tfopt.constant([2.0, 3.0])
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = decorator(f)(x)
        return [y, tape.gradient(y, x)]

    def of(slope: float) -> Any:
        own = decorator is tfopt.custom_gradient
        return (lambda x: (x * 2.0, lambda g: g * slope)) if own else lambda x: x * slope

    return Call(call, lambda: {"f": of(3.0)}, {"f": of(5.0)})


CALLS = {
    "custom_gradient": derived(tfopt.custom_gradient),
    "grad_pass_through": derived(tfopt.grad_pass_through),
    "recompute_grad": derived(tfopt.recompute_grad),
    "sdca_optimizer": sdca_call(sdca_ops.sdca_optimizer, "adaptive"),
    "SdcaOptimizer": sdca_call(raw_ops.SdcaOptimizer, "adaptative"),
    "SdcaOptimizerV2": sdca_call(raw_ops.SdcaOptimizerV2, "adaptive"),
    "sdca_fprint": Call(sdca_ops.sdca_fprint, lambda: {"input": ["a", "b"]}, {"input": ["c", "b"]}),
    "SdcaFprint": Call(raw_ops.SdcaFprint, lambda: {"input": ["a", "b"]}, {"input": ["c", "b"]}),
    **{
        name: Call(
            getattr(module, name),
            lambda: {"weights": [VECTOR.copy()], "l1": 0.25, "l2": 0.5},
            {},
            lambda given, _: given["weights"],
        )
        for module, name in ((sdca_ops, "sdca_shrink_l1"), (raw_ops, "SdcaShrinkL1"))
    },
    "SDCAModel": Call(
        like(weights_of_model, SDCAModel),
        lambda: {
            "sparse_features_weights": [],
            "dense_features_weights": [np.array([0.25, -0.5])],
            "adaptive": False,
            "symmetric_l1_regularization": 0.125,
        },
        {
            "sparse_features_weights": [np.zeros((2, 2))],
            "loss_type": "squared_loss",
            "dtype": np.float64,
        },
        idle=idle_in("SDCAModel"),
    ),
    **{name: clip_call(name) for name in clip_ops.__all__},
    "weighted_mean": Call(
        tfopt.weighted_mean,
        lambda: {"members": [VECTOR, 2 * VECTOR], "weights": [1.0, 3.0]},
        {
            "members": [VECTOR, 3 * VECTOR],
            "base": np.array([1.0, 2.0, 3.0]),
            "out": np.zeros(3),
            "nonfinite": "other",
        },
        lambda given, result: [result, given.get("out")],
    ),
    "ClipByValue": Call(
        raw_ops.ClipByValue, lambda: {"t": VECTOR, "clip_value_min": -1.0, "clip_value_max": 1.0}
    ),
    "L2Loss": Call(raw_ops.L2Loss, lambda: {"t": VECTOR}),
    "clip_by_norm_grad": Call(
        clip_grads.clip_by_norm_grad,
        lambda: {"grad": MATRIX[::-1].copy(), "t": MATRIX, "clip_norm": 1.0},
        {"axes": [0]},
    ),
    "clip_by_value_grad": Call(
        clip_grads.clip_by_value_grad,
        lambda: {"grad": VECTOR + 1, "t": VECTOR, "clip_value_min": -1.0, "clip_value_max": 1.0},
        {"clip_value_min": -5.0, "clip_value_max": 5.0, "t": -VECTOR},
    ),
    "GradientTape": Call(like(tape_outcome, tfopt.GradientTape), dict),
    "function": Call(
        like(traces, tfopt.function),
        lambda: {"func": lambda x: x + 1.0},
        {
            "func": lambda x: x + 2.0,
            "input_signature": [tfopt.TensorSpec([2], np.float64)],
        },
    ),
    "check_grads": Call(
        like(checked, autodiff.check_grads),
        lambda: {"f": lambda x: np.sin(x), "args": [VECTOR], "order": 1},
        {
            "f": lambda x: np.cos(np.sin(x)) * np.exp(nearly(x)),
            "order": 2,
            "args": [VECTOR + 1],
            "eps": 1e-4,
            # those two: test_tolerances_of_a_check_count
            "atol": "none", "rtol": "none",
        },
    ),
    "compute_gradient": Call(
        autodiff.compute_gradient,
        lambda: {"f": lambda x: np.sin(x), "x": [VECTOR]},
        {"f": lambda x: np.cos(x), "delta": 0.25},
    ),
    "logsumexp": Call(
        special.logsumexp,
        lambda: {"a": SQUARE},
        {"a": 2 * SQUARE, "axis": 0, "b": [-3.0, -1.0, -1.0], "keepdims": True,
         "return_sign": True},
    ),
    "softmax": Call(special.softmax, lambda: {"x": SQUARE}, {"x": 2 * SQUARE, "axis": 0}),
    "log_softmax": Call(special.log_softmax, lambda: {"x": SQUARE}, {"x": 2 * SQUARE, "axis": 0}),
    "solve_triangular": Call(
        linalg.solve_triangular,
        lambda: {"a": SQUARE, "b": TENSOR},
        {"a": 2 * SQUARE, "b": 2 * TENSOR, "trans": "T"},
    ),
    "cho_solve": Call(
        linalg.cho_solve,
        lambda: {"c_and_lower": (SQUARE, True), "b": TENSOR},
        {"c_and_lower": (SQUARE, False), "b": 2 * TENSOR},
    ),
    "expm": Call(linalg.expm, lambda: {"A": SQUARE}, {"A": 2 * SQUARE}),
    "norm.logpdf": Call(stats.norm.logpdf, lambda: {"x": TENSOR}, {"x": 2 * TENSOR}),
    "max_error": Call(autodiff.max_error, lambda: {"grad1": [VECTOR], "grad2": [VECTOR * 3]}),
    "constant": Call(
        tfopt.constant, lambda: {"value": 2.0}, {"dtype": np.float32, "shape": [2]}
    ),
    "jvp": Call(
        tfopt.jvp,
        lambda: {"f": lambda x: np.sin(x), "primals": [VECTOR], "tangents": [VECTOR]},
        {"f": lambda x: np.cos(x), "primals": [VECTOR + 1], "tangents": [VECTOR * 3]},
        lambda _, found: [np.asarray(part).tolist() for part in found],
    ),
    "ForwardAccumulator": Call(
        like(directed, tfopt.ForwardAccumulator),
        lambda: {"primals": [TENSOR], "tangents": [np.asarray(TENSOR)]},
        {"primals": [2 * TENSOR], "tangents": [3 * np.asarray(TENSOR)]},
    ),
    "stop_gradient": Call(tfopt.stop_gradient, lambda: {"input": VECTOR}),
    "TensorSpec": Call(
        tfopt.TensorSpec, lambda: {"shape": [2]}, {"shape": [3], "dtype": np.float64},
        lambda _, spec: [tuple(spec.shape), np.dtype(spec.dtype).name],
    ),
    "IndexedSlices": Call(
        tfopt.IndexedSlices,
        lambda: {"values": np.ones((2, 3)), "indices": np.array([1, 0])},
        {"dense_shape": (4, 3)},
    ),
    "lookup_bags": Call(
        tfopt.lookup_bags,
        lambda: {
            "bags": [tfopt.Bags([1, 0], [0, 1], 3)], "tables": [np.arange(6.0).reshape(3, 2)],
        },
        {"bags": [tfopt.Bags([1, 0], [0], 3)], "tables": [np.ones((3, 2))]},
    ),
    "Bags": Call(
        tfopt.Bags,
        lambda: {"ids": np.array([1, 0]), "offsets": np.array([0, 2]), "n_rows": 3},
        {
            "ids": np.array([1, 1]), "offsets": np.array([0, 1]), "n_rows": 2, "pooling": "mean",
            "weights": np.array([1.0, 2.0]), "include_last_offset": True,
        },
        lambda _, bags: [bags.lookup(np.ones((bags.n_rows, 2))), np.asarray(bags.gradient(
            np.ones((len(bags), 2))))],
    ),
    "SparseRows": Call(
        tfopt.SparseRows,
        lambda: {"X": sparse.csr_matrix(MATRIX)},
        {"X": sparse.csr_matrix(MATRIX.T)},
        lambda _, rows: [rows.values, rows.columns, rows.ends, rows.shape],
    ),
    "Variable": Call(
        like(variable_of, tfopt.Variable),
        lambda: {"initial_value": 2.0},
        {"name": "v", "dtype": np.float32, "constraint": lambda w: w / 2},
    ),
    "assign": grown("assign"),
    "assign_add": grown("assign_add"),
    "assign_sub": grown("assign_sub"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_functions_argument_counts(name: str) -> None:
    assert not list(changes(CALLS[name]))


@pytest.mark.parametrize(
    ("name", "axes", "nonfinite"),
    [("clip_by_norm", [0], "raise"), ("clip_by_average_norm", None, "raise"),
     ("clip_by_global_norm", None, "raise")],
)  # fmt: skip
def test_an_option_of_clipping_counts(name: str, axes: Any, nonfinite: str) -> None:
    function = getattr(clip_ops, name)
    if axes is not None:
        assert bits(function(MATRIX, 1.0)) != bits(function(MATRIX, 1.0, axes))
    given = [WITH_NAN] if "global" in name else WITH_NAN
    kinds = Call(lambda nonfinite: function(given, 1.0, nonfinite=nonfinite), dict)
    assert outcome(kinds, nonfinite="propagate")[:1] != ("refused",)


def test_a_models_order_counts() -> None:
    """The seed of a fit."""
    found = []
    for seed in (1, 2):
        weights = [np.zeros(2, np.float32)]
        model = SDCAModel([], weights, adaptive=True)
        random = np.random.default_rng(0)
        batch = {
            "sparse_features": [], "dense_features": [random.normal(size=(8, 2))],
            "example_weights": np.ones(8), "example_labels": np.arange(8) % 2 * 1.0,
            "example_ids": [str(k) for k in range(8)],
        }  # fmt: skip
        model.partial_fit(batch, seed=seed)
        model.update_weights()
        found.append(bits(weights))
    assert found[0] != found[1]


def test_a_checkpoint_is_of_its_arguments(tmp_path: Any) -> None:
    for name in ("one", "two"):
        checkpoints.save(tmp_path / f"{name}.npz", {"w": np.full(2, ord(name[0]))})
    one, two = (checkpoints.load(tmp_path / f"{name}.npz")["w"] for name in ("one", "two"))
    assert (one != two).all()


#: What is made by functions or called with names alone, which the tests of each give others.
BY_NAME = {"Bind", "Function", "NoGradient", "NotDifferentiable", "RegisterGradient", "SdcaResult",
           "Tensor", "UnconnectedGradients", "get_variable_by_name", "gradient_override_map",
           "infer_shapes", "no_gradient", "set_conversion"}  # fmt: skip


def test_every_public_function_is_tried() -> None:
    named = {
        name
        for module in (autodiff, clip_ops, clip_grads, linalg, raw_ops, sdca_ops, special, tfopt)
        for name in module.__all__
        if callable(getattr(module, name))
        and (inspect.isfunction(getattr(module, name)) or "__init__" in vars(getattr(module, name)))
    }
    environment = {"get_flush_denormals", "set_flush_denormals", "show_versions"}
    assert named - environment - BY_NAME - set(UPDATES) <= set(CALLS)
