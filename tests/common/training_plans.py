"""Random training runs: every optimizer, wrapper and option, from the classes' signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tfopt
import tfopt_ref
from common.cases import LAYOUTS, edge_values, lay_out
from common.optimizer_arguments import RULES, USUAL, arguments_of, other_value
from common.wrapper_cases import WRAPPERS
from tfopt.optimizers import schedules
from tfopt_ref.algorithms import ALGORITHMS, step_of
from tfopt_ref.training import arrived_step, first_state, train_step
from tfopt_ref.update import Rows

__all__ = [
    "COMPLEX",
    "CONSTRAINTS",
    "DTYPES",
    "KINDS",
    "LEFT_OUT",
    "STACKS",
    "Plan",
    "Run",
    "drawn_plan",
]

DTYPES = [np.dtype(d) for d in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
SHAPES = ((), (3,), (4, 2), (2, 3), (5, 1), (2, 3, 2), (0, 2))
KINDS = ("dense", "rows", "rows twice", "none", "dense twice")
#: What is around the optimizer: nothing, each wrapper, or two of them.
STACKS = ("alone", *WRAPPERS, "two wrappers")
#: Of each argument that other values mean more for than `other_value` knows.
VALUES: dict[str, tuple[Any, ...]] = {
    "beta_1": (0.9, 0.5, 0.0),
    "beta_2": (0.999, 0.9, 0.5, 1.0),
    "clipnorm": (None, None, 0.5, 3.0, 0.0, np.inf, 1e-310),
    "clipvalue": (None, None, 0.5, 2.0, 0.0, np.inf, 1e-44),
    "global_clipnorm": (None, None, 0.5, 3.0, 0.0, np.inf, 1e-44),
    "epsilon": (1e-7, 0.01, 0.5),
    "learning_rate_power": (-0.5,),  # others call pow, whose last bits differ
    "merge": ("after", "before"),
    "momentum": (0.0, 0.9, 0.5),
    "overwrite_frequency": (None, 1, 2),
    "sparse": ("tensorflow", "lazy", "catch_up"),
    "steps": (1, 2, 3),
    "storage": (*[None] * 8, "float32", "float16", "bfloat16", "8bit", "4bit"),
    "reduction": ("mean", "sum"),
    "stochastic_rounding": (*[None] * 6, 0, 2**64 - 1),
    "cautious_weight_decay": (False, True),
    "initial_scale": (1.0, 4.0, 2.0**15),
    "dynamic_growth_steps": (1, 2, 2000),
    "weight_decay": (None, 0.0, 0.1),
}
#: Storages of variables whose elements lie in the order of C, with dense gradients.
IN_BLOCKS = {"8bit", "4bit"}
#: What variables may have to be after a step.
CONSTRAINTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "not negative": lambda w: np.where(w < 0, w.dtype.type(0), w),
    "halved": lambda w: w * w.dtype.type(0.5),
}
#: What a configuration does not hold, or nothing depends on.
LEFT_OUT = {"name", "lr", "gradient_aggregator", "gradient_transformers", "use_locking"}


@dataclass
class Plan:
    """A configuration, and variables with their gradients at each step."""

    config: dict[str, Any]
    first: dict[str, np.ndarray]
    layouts: dict[str, str]
    steps: list[list[tuple[str, Any]]]
    threads: int
    flush: bool
    tried: set[str] = field(default_factory=set)
    constraints: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, float]] = field(default_factory=list)  # of each step, if of any
    arrives: list[bool] = field(default_factory=list)  # whether the gradients of a step do


def drawn_plan(which: str, stack: str, seed: int) -> Plan:
    """Return a run of an optimizer in a stack of wrappers."""
    random = np.random.default_rng(seed)
    optimizer, tried = _optimizer(random, which, stack)
    late = "sparse catch_up" in tried
    stores = {each.removeprefix("storage ") for each in tried if each.startswith("storage ")}
    usable = DTYPES[2 * late : 3 if stores else 4]
    rounds, cautious = "stochastic_rounding" in tried, "cautious_weight_decay True" in tried
    if rounds:  # of each optimizer, at least one variable
        usable = DTYPES[1:2] if "ParameterGroups" in tried else usable[1:]
    orders = list(LAYOUTS)
    first, layouts = {}, {}
    special = not late and random.random() < 0.4
    config = tfopt.optimizers.serialize(optimizer)
    more = np.random.default_rng((seed, 1))
    none = special or late or more.random() < 0.1 or bool(stores or cautious or rounds)
    complex_kinds = () if none else _complex_kinds(config)
    constraints: dict[str, str] = {}
    for k in range(int(random.integers(1, 5))):
        shape, dtype = _one(random, SHAPES[1:] if late else SHAPES), _one(random, usable)
        dtype = DTYPES[1] if rounds and k == 0 else dtype
        layouts[f"w{k}"] = "contiguous" if stores & IN_BLOCKS else _one(random, orders)
        first[f"w{k}"] = _values(random, shape, dtype, special)
        if complex_kinds and more.random() < 0.7:
            first[f"w{k}"] = _values(more, shape, _one(more, COMPLEX), False)
        elif more.random() < 0.2:
            constraints[f"w{k}"] = _one(more, [*CONSTRAINTS])
    tried |= set(constraints.values())
    tried |= {str(w.dtype) for w in first.values()} | set(layouts.values())
    summed = "GradientAccumulation" in tried
    absent = {name for name in [*first][1:] if random.random() < 0.3}
    steps = []
    for _ in range(int(random.integers(2, 7))):
        pairs: list[tuple[str, Any]] = []
        for name, w in first.items():
            if summed:  # every batch of a step brings the same variables, and each once
                kind = "none" if name in absent else _one(random, KINDS[:3])
            else:
                once = name == "w0" or "WeightAverage" in tried
                kind = _one(random, KINDS[:3] if name == "w0" else KINDS[:-1] if once else KINDS)
            refused = kind not in complex_kinds if w.dtype.kind == "c" else name in constraints
            blocks = stores & IN_BLOCKS or not w.shape
            if kind != "none" and (refused or (kind.startswith("rows") and blocks)):
                kind = "dense"
            tried.add(kind)
            pairs += _gradients(random, name, w, kind, special, orders)
        if "LossScaleOptimizer" in tried and random.random() < 0.2:
            _spoil(random, pairs, tried)
        steps.append(pairs)
    plan = Plan(
        config, first, layouts, steps, threads=int(random.integers(1, 4)),
        flush=bool(random.random() < 0.7), tried=tried, constraints=constraints,
    )  # fmt: skip
    plan.asked = [_asked(more, optimizer, tried) for _ in steps] if more.random() < 0.5 else []
    if more.random() < 0.5:
        plan.arrives = [_can_arrive(pairs) and bool(more.random() < 0.7) for pairs in steps]
        tried.update(["arriving"] if any(plan.arrives) else [])
    plan.tried |= {f"{plan.threads} threads", "flushed" if plan.flush else "gradual underflow"}
    return plan


class Run:
    """Both sides of a run: the optimizer and the specification, step by step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        tfopt.threads.set_num_threads(plan.threads)
        for package in (tfopt, tfopt_ref):
            package.set_flush_denormals(plan.flush)
        self.optimizer = tfopt.optimizers.deserialize(plan.config)
        laid_out = {k: lay_out(w, plan.layouts[k]) for k, w in plan.first.items()}
        self.constraints = {k: CONSTRAINTS[which] for k, which in plan.constraints.items()}
        self.variables = {
            k: tfopt.Variable(w, k, constraint=self.constraints.get(k)) for k, w in laid_out.items()
        }
        self.expected = plan.first
        self.state: Any = first_state(plan.config)
        self.taken = 0

    def step(self, pairs: list[tuple[str, Any]]) -> None:
        """Take one step on both sides."""
        asked = self.plan.asked[self.taken] if self.plan.asked else {}
        arrives = bool(self.plan.arrives) and self.plan.arrives[self.taken]
        self.taken += 1
        if arrives:
            self._step_of_arriving(pairs, asked)
            return
        given = [
            (tfopt.IndexedSlices(*grad) if isinstance(grad, Rows) else grad, self.variables[name])
            for name, grad in pairs
        ]
        self.optimizer.apply_gradients(given, **asked)
        present = [(name, grad) for name, grad in pairs if grad is not None]
        new, self.state = train_step(
            self.plan.config, self.expected, self.state, present, self.constraints, **asked
        )
        self.expected = {k: np.asarray(w) for k, w in new.items()}

    def _step_of_arriving(self, pairs: list[tuple[str, Any]], asked: dict[str, float]) -> None:
        """Take one step whose gradients arrive, in another order, and compare its report."""
        arrived = {name: grad for name, grad in reversed(pairs) if grad is not None}
        arriving = self.optimizer.arriving(self.variables)
        for name, grad in arrived.items():
            arriving.add(name, tfopt.IndexedSlices(*grad) if isinstance(grad, Rows) else grad)
        report = arriving.take(**asked, missing="skip")
        new, self.state, norm, nonfinite = arrived_step(
            self.plan.config, self.expected, self.state, arrived,
            constraints=self.constraints, **asked,
        )  # fmt: skip
        self.expected = {k: np.asarray(w) for k, w in new.items()}
        assert report.nonfinite == tuple(nonfinite)
        if all(w.dtype.kind == "f" or w.dtype == DTYPES[1] for w in self.expected.values()):
            np.testing.assert_array_equal(report.norm, norm)

    def compared(self) -> list[tuple[str, Any, Any]]:
        """Return name, our value and the specification's for everything that a step changes."""
        pairs = [(k, w.numpy(), self.expected[k]) for k, w in self.variables.items()]
        return [*pairs, *self._states(self.optimizer, self.state)]

    def _states(self, opt: Any, state: Any) -> list[tuple[str, Any, Any]]:
        if "optimizers" in state:
            inside = zip(opt.optimizers, state["optimizers"], strict=True)
            return [found for one, its in inside for found in self._states(one, its)]
        if "slots" in state:
            slots = [
                (f"{slot} of {name}", opt.get_slot(self.variables[name], slot).numpy(), array)
                for name, own in state["slots"].items()
                for slot, array in own.items()
            ]
            count, *others = [weight.numpy() for weight in opt.weights]
            kept = state["kept"]
            carried = [] if kept is None else [("kept", others[0], np.float64(kept))]
            assert len(others) >= len(slots) + len(carried)
            return [("iterations", count, np.int64(state["iterations"])), *slots, *carried]
        found: list[tuple[str, Any, Any]] = []
        for name, part in state.items():
            if isinstance(part, dict) and name != "optimizer":
                slot = {"sums": "gradient"}.get(name, name)
                found += [
                    (f"{slot} of {var}", opt.get_slot(self.variables[var], slot).numpy(), array)
                    for var, array in part.items()
                    if not isinstance(array, Rows)
                ]
            elif name != "optimizer":
                found.append((name, getattr(opt, name).numpy(), np.asarray(part)))
        return [*found, *self._states(opt.optimizer, state["optimizer"])]


def _can_arrive(pairs: list[tuple[str, Any]]) -> bool:
    """Return whether no variable has two gradients in a step."""
    names = [name for name, _ in pairs]
    return len(set(names)) == len(names)


def _asked(random: Any, optimizer: Any, tried: set[str]) -> dict[str, float]:
    """Return what a step is asked for besides its gradients."""
    asked = {}
    if random.random() < 0.5:
        asked["grad_scale"] = _one(random, (0.5, 3.0, 1e-3, 2.0**-40, 1e3))
    if optimizer.capabilities.takes_norm and random.random() < 0.7:
        asked["use_norm"] = _one(random, (0.0, 0.25, 7.5, 1e-300, 1e300, np.inf, np.nan))
    tried.update(asked)
    return asked


# ---- optimizers


def _optimizer(random: Any, which: str, stack: str) -> tuple[Any, set[str]]:
    """Return a wrapped optimizer, and the names of its parts."""
    while True:
        tried = {which}
        try:
            optimizer = _made(random, which, tried)
            if stack == "two wrappers":
                for wrapper in random.choice([*WRAPPERS], 2):
                    optimizer = _wrapped(random, wrapper, optimizer, tried)
            elif stack != "alone":
                optimizer = _wrapped(random, stack, optimizer, tried)
        except (tfopt.InvalidArgumentError, ZeroDivisionError):
            continue  # two options that do not go together
        if {"sparse catch_up", "stochastic_rounding"} <= tried:
            continue  # of two groups, which take variables of different dtypes
        return optimizer, tried


def _made(random: Any, which: str, tried: set[str]) -> Any:
    """Return an optimizer with some of its arguments set to other values."""
    cls = getattr(tfopt.optimizers, which)
    arguments = {
        name: _argument(random, name, parameter, tried)
        for name, parameter in arguments_of(cls).items()
        if name not in LEFT_OUT and random.random() < 0.5
    }
    number = _one(random, (0.125, 2.0))
    arguments["learning_rate"] = _rate(random, tried) if random.random() < 0.6 else number
    optimizer = cls(**arguments)
    if callable(arguments["learning_rate"]):
        cls(min(map(arguments["learning_rate"], range(20))))  # is refused if a rate will be
    if arguments.get("storage"):
        rounds = arguments.get("stochastic_rounding") is not None
        w = np.ones(300, ml_dtypes.bfloat16 if rounds else np.float32)
        optimizer.apply_gradients([(w.copy(), w)])
        optimizer = cls(**arguments)  # is refused if a slot cannot be stored so
    may_exclude = hasattr(optimizer, "exclude_from_weight_decay")  # Adafactor has no such method
    if may_exclude and optimizer.weight_decay and random.random() < 0.5:
        optimizer.exclude_from_weight_decay(var_names=["w[12]$"])
        tried.add("exclusion")
    told = ("sparse", "merge", "compat", "storage", "cautious_weight_decay")
    tried |= {f"{k} {v}" for k, v in arguments.items() if k in told and v is not None}
    tried |= {k for k, v in arguments.items() if v is not None}
    return optimizer


def _argument(random: Any, name: str, parameter: inspect.Parameter, tried: set[str]) -> Any:
    if name in VALUES:
        return _one(random, VALUES[name])
    return _one(random, (parameter.default, other_value(name, parameter.default)))


def _rate(random: Any, tried: set[str]) -> Any:
    cls = getattr(schedules, _one(random, SCHEDULES))
    arguments = {
        name: USUAL[name] if parameter.default is parameter.empty else parameter.default
        for name, parameter in arguments_of(cls).items()
    }
    for name, parameter in arguments_of(cls).items():
        default = parameter.default
        if name != "name" and isinstance(default, (bool, float)) and random.random() < 0.3:
            arguments[name] = other_value(name, default)
    if "initial_variance" in arguments:
        arguments["initial_variance"] = 0.01  # with the usual one rates are often negative
    tried.add(cls.__name__)
    return cls(**arguments)


def _is_schedule(name: str) -> bool:
    value = getattr(schedules, name)
    base = schedules.LearningRateSchedule
    return isinstance(value, type) and issubclass(value, base) and value is not base


SCHEDULES = [name for name in schedules.__all__ if _is_schedule(name)]


def _wrapped(random: Any, wrapper: str, inner: Any, tried: set[str]) -> Any:
    cls = getattr(tfopt.optimizers, wrapper)
    arguments: dict[str, Any] = {}
    for name, parameter in arguments_of(cls).items():
        if name == "groups":
            others = [_made(random, _one(random, RULES), tried) for _ in range(2)]
            arguments[name] = [("w1", others[0]), ("w[12]", others[1])]
        elif name not in {*LEFT_OUT, "optimizer"} and (
            parameter.default is parameter.empty or random.random() < 0.5
        ):
            values = VALUES.get(name) or WRAPPERS[wrapper].changed[name]
            arguments[name] = _one(random, values)
    tried.add(wrapper)
    return cls(inner, **arguments)


_COMPLEX = {f"apply_{rule.name}": rule.complex for rule in tfopt.rules.RULES}


def _complex_kinds(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the kinds of gradients of complex variables that an optimizer takes."""
    name, own = config["class_name"], config["config"]
    inside = [own["optimizer"]] if "optimizer" in own else []
    inside += [group for _, group in own.get("groups", ())]
    if inside:
        if name == "GradientAccumulation":
            return ()
        return tuple(set.intersection(*(set(_complex_kinds(each)) for each in inside)))
    if name not in ALGORITHMS or {"clipnorm", "clipvalue", "global_clipnorm"} & {*own}:
        return ()
    step = step_of(name, own, t=1, lr=0.5, kept=None)
    dense, rows = (_COMPLEX[rule.__name__] for rule in (step.rule, step.rows or step.rule))
    return KINDS if dense and rows else ("dense", "dense twice", "none") if dense else ()


# ---- arrays


def _gradients(
    random: Any, name: str, w: np.ndarray, kind: str, special: bool, orders: list[str]
) -> list[tuple[str, Any]]:
    dtype = w.dtype
    if dtype == np.float32 and random.random() < 0.2:
        dtype = _one(random, DTYPES[:2])
    if kind == "none":
        return [(name, None)]
    if kind.startswith("dense"):
        return [
            (name, lay_out(_values(random, w.shape, dtype, special), _one(random, orders)))
            for _ in range(2 if kind == "dense twice" else 1)
        ]
    n = int(random.integers(0, 6)) if len(w) else 0
    if kind == "rows":
        ids = random.permutation(len(w))[:n]
    else:
        ids = random.integers(0, max(len(w), 1), n)
    values = lay_out(
        _values(random, (len(ids), *w.shape[1:]), dtype, special), _one(random, orders)
    )
    return [(name, Rows(values, ids.astype(_one(random, (np.int32, np.int64)))))]


def _spoil(random: Any, pairs: list[tuple[str, Any]], tried: set[str]) -> None:
    """Put a non-finite number into a gradient, so that the step is skipped."""
    given = [grad.values if isinstance(grad, Rows) else grad for _, grad in pairs]
    arrays = [grad for grad in given if grad is not None and grad.size]
    if arrays:
        array = _one(random, arrays)
        array[tuple(int(random.integers(n)) for n in array.shape)] = _one(random, (np.inf, np.nan))
        tried.add("left out")


def _values(random: Any, shape: Any, dtype: Any, special: bool) -> np.ndarray:
    values = np.asarray(random.standard_normal(shape)).astype(dtype)
    if values.dtype.kind == "c":
        values = np.asarray(values + 1j * random.standard_normal(shape)).astype(dtype)
    if special:
        info = ml_dtypes.finfo(dtype)
        edges = np.array(edge_values(dtype) if info.bits > 16 else [0, np.inf, info.max], dtype)
        flat = values.reshape(-1)
        for place in random.permutation(flat.size)[: int(random.integers(0, 2))]:
            flat[place] = _one(random, edges)
        values = flat.reshape(shape)
    return values


def _one(random: Any, choices: Any) -> Any:
    return choices[int(random.integers(len(choices)))]
