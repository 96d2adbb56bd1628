"""Training in one of many ways, beside a plain run and the specification of each step."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import scipy.sparse
from common.cases import LAYOUTS, lay_out
from common.compared_steps import compare
from common.training_plans import Plan, Run

import tfopt
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt_ref.training import train_step
from tfopt_ref.update import Rows

__all__ = ["EVENTS", "GRADIENTS", "WAYS", "TrainingRun"]

Gradient = Any


# ---- ways to take a step: of an optimizer, variables by name and their gradients


def _by_pairs(run: TrainingRun, grads: dict[str, Gradient]) -> None:
    run.optimizer.apply_gradients([(grads[name], run.variables[name]) for name in grads])


def _by_dict(run: TrainingRun, grads: dict[str, Gradient]) -> None:
    run.optimizer.step(run.variables, grads)


def _by_list(run: TrainingRun, grads: dict[str, Gradient]) -> None:
    run.optimizer.step([*run.variables.values()], [grads[name] for name in run.variables])


def _by_tape(run: TrainingRun, grads: dict[str, Gradient]) -> None:
    with tfopt.GradientTape() as tape:
        losses = [np.sum(run.variables[name] * np.conj(grad)) for name, grad in grads.items()]
    found = tape.gradient(losses, [*run.variables.values()])
    run.optimizer.apply_gradients(zip(found, run.variables.values(), strict=True))


def _by_function(run: TrainingRun, grads: dict[str, Gradient]) -> None:
    if run.function is None:
        optimizer, variables = run.optimizer, [*run.variables.values()]

        @tfopt.function
        def step(*given: Any) -> None:
            optimizer.apply_gradients(list(zip(given, variables, strict=True)))

        run.function = step
    run.function(*grads.values())


#: By name: whether its variables are `Variable` or arrays, and the function.
WAYS: dict[str, tuple[bool, Callable[[TrainingRun, dict[str, Gradient]], None]]] = {
    "pairs of variables": (True, _by_pairs),
    "pairs of arrays": (False, _by_pairs),
    "dict": (False, _by_dict),
    "list": (False, _by_list),
    "tape": (True, _by_tape),
    "function": (True, _by_function),
}


# ---- gradients: of a variable's array, from random numbers


def _dense(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    return lay_out(_numbers(random, w.shape, w.dtype), run.gradient_layout)


def _rows(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    if w.ndim == 0:
        return _dense(run, w, random)
    ids = random.permutation(len(w))[: len(w) // 3]
    return _slices(run, w, ids.astype(np.int32), random)


def _repeated_rows(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    if w.ndim == 0 or not len(w):
        return _rows(run, w, random)
    return _slices(run, w, random.integers(0, len(w), 2 * len(w) + 1), random)


def _slices(run: TrainingRun, w: np.ndarray, ids: Any, random: np.random.Generator) -> Gradient:
    values = _numbers(random, (len(ids), *w.shape[1:]), w.dtype)
    return tfopt.IndexedSlices(lay_out(values, run.gradient_layout), ids)


def _matrix(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    if w.ndim != 2 or w.dtype.itemsize == 2 or not w.size:  # SciPy has none
        return _dense(run, w, random)
    dense = _numbers(random, w.shape, w.dtype) * (random.random((len(w), 1)) < 0.4)
    return scipy.sparse.csr_matrix(dense.astype(w.dtype))


def _reversed_self(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    return w[::-1] if w.ndim else w


def _other(run: TrainingRun, w: np.ndarray, random: np.random.Generator) -> Gradient:
    """The array of the other variable of the same shape; that of a single one."""
    arrays = map(run.array, run.variables.values())
    same = [a for a in arrays if a.shape == w.shape]
    return next((a for a in same if not np.shares_memory(a, w)), w)


#: By name: how a gradient is made.
GRADIENTS: dict[str, Callable[[TrainingRun, np.ndarray, np.random.Generator], Gradient]] = {
    "dense": _dense,
    "rows": _rows,
    "repeated rows": _repeated_rows,
    "sparse matrix": _matrix,
    "reversed variable": _reversed_self,
    "another variable": _other,
}


def _numbers(random: np.random.Generator, shape: Any, dtype: Any) -> np.ndarray:
    numbers = np.asarray(random.standard_normal(shape))
    if np.dtype(dtype).kind == "c":
        numbers = np.asarray(numbers + 1j * random.standard_normal(shape))
    return numbers.astype(dtype)


def _value(gradient: Gradient, w: np.ndarray) -> Any:
    """Return what a gradient is at this moment, as the specification takes it."""
    if isinstance(gradient, tfopt.IndexedSlices):
        return Rows(np.array(gradient.values), np.array(gradient.indices))
    if scipy.sparse.issparse(gradient):
        rows = np.flatnonzero(np.diff(gradient.indptr))
        return Rows(gradient[rows].toarray(), rows)
    return np.array(gradient)


class TrainingRun:
    """An optimizer that steps variables in some way, and what its steps are compared with.

    Parameters
    ----------
    make : callable
        Returns the optimizer.
    shapes : list of tuple
        Of the variables.
    dtype, layout, way, gradient, gradient_layout : str
    threads : int
    specified : bool
        Whether the specification has such an optimizer; otherwise the plain run is all.
    late, in_blocks : bool
        Whether updates of rows are deferred, and whether slots are stored in blocks of codes.
    seed : int
    """

    def __init__(
        self,
        make: Callable[[], Any],
        shapes: list[tuple[int, ...]],
        dtype: str = "float64",
        layout: str = "contiguous",
        way: str = "pairs of variables",
        gradient: str = "dense",
        gradient_layout: str = "contiguous",
        threads: int = 1,
        specified: bool = True,
        late: bool = False,
        in_blocks: bool = False,
        kept: bool = True,
        seed: int = 0,
    ) -> None:
        self.make, self.layout, self.gradient_layout = make, layout, gradient_layout
        self.gradient, self.specified, self.late = gradient, specified, late
        self.layouts = ["contiguous"] if in_blocks else [*LAYOUTS]
        self.wraps, self.take = WAYS[way]
        self.random = np.random.default_rng(seed)
        self.function: Any = None
        kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
        first = {f"w{k}": _numbers(self.random, shape, kind) for k, shape in enumerate(shapes)}
        tfopt.threads.set_num_threads(threads)
        tfopt.set_flush_denormals(False)
        os.environ["TFOPT_REPEAT"] = str(int(kept))
        self.optimizer = make()
        os.environ["TFOPT_REPEAT"] = "0"  # the plain run binds each step anew
        self.variables = {k: self._wrapped(lay_out(w, layout), k) for k, w in first.items()}
        config = tfopt.optimizers.serialize(self.optimizer)
        plain = dict.fromkeys(first, "contiguous")
        self.plain = Run(Plan(config, first, plain, [], threads, False))
        del os.environ["TFOPT_REPEAT"]
        self.refused = False

    def _wrapped(self, array: np.ndarray, name: str) -> Any:
        return tfopt.Variable(array, name) if self.wraps else array

    @staticmethod
    def array(variable: Any) -> np.ndarray:
        """Return the array of a variable."""
        return variable.numpy() if isinstance(variable, tfopt.Variable) else variable

    # ---- steps

    def step(self) -> None:
        """Take a step, which all sides take alike, or refuse alike."""
        if self.refused:
            return
        grads = {
            name: GRADIENTS[self.gradient](self, self.array(w), self.random)
            for name, w in self.variables.items()
        }
        values = {name: _value(g, self.array(self.variables[name])) for name, g in grads.items()}
        ours = self._outcome(lambda: self.take(self, grads))
        theirs = self._outcome(lambda: self._step_plain(values))
        assert type(ours) is type(theirs), f"ours: {ours!r}; the plain run: {theirs!r}"
        self.refused = ours is not None
        if not self.refused and self.specified:
            self.plain.expected, self.plain.state = self._specified_step(values)
        self.check()

    def _step_plain(self, values: dict[str, Any]) -> None:
        given = [
            (tfopt.IndexedSlices(*g) if isinstance(g, Rows) else g, self.plain.variables[name])
            for name, g in values.items()
        ]
        self.plain.optimizer.apply_gradients(given)

    def _specified_step(self, values: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        plain = self.plain
        new, state = train_step(plain.plan.config, plain.expected, plain.state, [*values.items()])
        return {k: np.asarray(w) for k, w in new.items()}, state

    @staticmethod
    def _outcome(action: Callable[[], None]) -> Exception | None:
        try:
            action()
        except InvalidArgumentError as error:
            return error
        return None

    def check(self) -> None:
        """Compare all weights and slots with those of the plain run and of the specification."""
        if self.late:
            self.optimizer.flush()
            self.plain.optimizer.flush()
        for name, w in self.variables.items():
            compare(name, self.array(w), self.plain.variables[name].numpy(), self.late)
        if self.specified and not self.refused:
            for name, ours, theirs in self.plain.compared():
                compare(name, ours, theirs, self.late)
            for name, ours, theirs in self._slots():
                compare(name, ours, theirs, self.late)

    def _slots(self) -> list[tuple[str, Any, Any]]:
        own = copy.copy(self.plain)
        own.optimizer, own.variables = self.optimizer, self.variables
        return own._states(self.optimizer, self.plain.state)

    # ---- events between two steps

    def replace(self) -> None:
        """Replace arrays by copies in another layout, where a structure owns the slots."""
        if self.take in (_by_dict, _by_list):
            layout = self.layouts[int(self.random.integers(len(self.layouts)))]
            for name, w in self.variables.items():
                self.variables[name] = lay_out(w.copy(), layout)
            self.check_weights()

    def check_weights(self) -> None:
        """Compare the weights alone: slots belong to arrays again after the next step."""
        for name, w in self.variables.items():
            compare(name, self.array(w), self.plain.variables[name].numpy(), self.late)

    def _named(self) -> Any:
        return [*self.variables.values()] if self.take is _by_list else self.variables

    def load(self) -> None:
        """Go on with a new optimizer that has loaded the state, from memory or from a file."""
        state_at = self.optimizer
        self.optimizer, self.function = self.make(), None
        self._follow_settings(state_at)
        if self.random.random() < 0.5:
            self.optimizer.load_state_dict(state_at.state_dict(self._named()), self._named())
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / ("s.npz" if self.random.random() < 0.5 else "s.safetensors")
                state_at.save(path, self._named())
                self.optimizer.load(path, self._named())
        self.check()

    def _follow_settings(self, before: Any) -> None:
        """Observe as before: that is not a part of the state."""
        if isinstance(innermost(before), RuleOptimizer):
            innermost(self.optimizer).observe = innermost(before).observe

    def pickle(self) -> None:
        """Go on with a pickled copy of the optimizer and its variables."""
        self.optimizer, self.variables = pickle.loads(
            pickle.dumps((self.optimizer, self.variables))
        )
        self.function = None
        self.check_weights()

    def deepcopy(self) -> None:
        """Go on with a deep copy of the optimizer and its variables."""
        self.optimizer, self.variables = copy.deepcopy((self.optimizer, self.variables))
        self.function = None
        self.check_weights()

    def refuse(self) -> None:
        """Try a step whose last gradient does not fit."""
        *_, last = self.variables
        grads = {
            name: _numbers(self.random, self.array(w).shape, self.array(w).dtype)
            for name, w in self.variables.items()
        }
        grads[last] = np.ones((*self.array(self.variables[last]).shape, 2), grads[last].dtype)
        try:
            self.optimizer.apply_gradients([(grads[name], w) for name, w in self.variables.items()])
        except InvalidArgumentError:
            self.check_weights()
        else:
            raise AssertionError("a gradient of another shape was accepted")

    def change_rate(self) -> None:
        """Set the learning rate of all sides."""
        for optimizer in (self.optimizer, self.plain.optimizer):
            innermost(optimizer).learning_rate = 0.25
        self.plain.plan.config = tfopt.optimizers.serialize(self.plain.optimizer)

    def observe(self) -> None:
        """Turn the report of steps on or off, which changes no result."""
        inside = innermost(self.optimizer)
        real = all(self.array(w).dtype.kind != "c" for w in self.variables.values())
        if isinstance(inside, RuleOptimizer) and real:  # others have no report
            inside.observe = not inside.observe

    def lock(self) -> None:
        """Hold the variables' locks from now on, or no longer, which changes no result."""
        inside = innermost(self.optimizer)
        inside.use_locking = not inside.use_locking

    def change_threads(self) -> None:
        """Use another number of threads."""
        tfopt.threads.set_num_threads(int(self.random.integers(1, 4)))

    def look(self) -> None:
        """Read the state, which changes nothing."""
        if self.plain.optimizer.iterations.numpy() and not self.refused:
            self.optimizer.state_dict(self._named())
            self.optimizer.get_weights()
            self.optimizer.get_config()
        self.check_weights()

    def flush(self) -> None:
        """Apply what is deferred."""
        self.optimizer.flush()
        self.plain.optimizer.flush()

    def write(self) -> None:
        """Write to a variable between steps, as a training loop may."""
        name, w = next(iter(self.variables.items()))
        self.array(w)[...] = self.plain.expected[name] if self.specified else self.array(w)


def innermost(optimizer: Any) -> Any:
    """Return the optimizer inside all wrappers; of groups, that of variables in no group."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


#: What may happen between two steps: methods of `TrainingRun`.
EVENTS = (
    "step", "replace", "load", "pickle", "deepcopy", "refuse", "change_rate", "observe",
    "lock", "change_threads", "look", "flush", "write",
)  # fmt: skip
