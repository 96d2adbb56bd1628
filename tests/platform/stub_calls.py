"""Call everything that the stubs of the kernels declare, correctly and then in wrong ways.

Run as a script, it prints each call before it makes it, so that one that kills the process is the
last that is printed.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import datetime
import faulthandler
import importlib
import itertools
import math
import platform
import random
import sys
import types
from ctypes import CFUNCTYPE, POINTER, c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

import tfopt
from tfopt.core.workspace import Workspace
from tfopt.cuda.library import capsule_of
from tfopt.kernels import cpu as instruction_set
from tfopt.kernels import kernels
from tfopt.kernels.arrays import aliasing
from tfopt.kernels.linear import multiclass, visits
from tfopt.kernels.platform import locking, runtime
from tfopt.kernels.tf_sdca import feature_groups, fingerprint_table
from tfopt.kernels.update import (
    checks,
    clip,
    commit,
    multi_tensor,
    pipeline,
    repetition,
    sparse_checks,
    step_table,
)
from tfopt.rules import RULES, Rule
from tfopt.storage import SIGNED8

STUBS = sorted((Path(tfopt.__file__).parent / "kernels").glob("*/*.pyi"))
DENORMAL = np.full(4, 1e-310)
PAIRS = 12  # calls with two wrong arguments, of each function


def declared() -> list[str]:
    """Return all names in the stubs, as folder.module.name or folder.module.class.name."""
    found = []
    for stub in STUBS:
        for node in ast.parse(stub.read_text()).body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            found += [
                f"{stub.parent.name}.{stub.stem}.{prefix}{function.name}"
                for function in inner
                if isinstance(function, ast.FunctionDef)
            ]
    return found


N, D, WIDTH = 6, 5, 2
M = D + WIDTH
KERNEL = kernels["keras_momentum"]
ADAGRAD = kernels["adagrad"]
#: The attributes of a RuleUpdate that are read.
MOMENTUM = types.SimpleNamespace(
    hypers={"lr": 0.1, "momentum": 0.9}, flags={"use_nesterov": False}, keep=1.0, decay=0.0,
    rounding=None,
)  # fmt: skip
STEPS = importlib.import_module(f"tfopt.kernels.update.steps_{instruction_set}")


def _rows() -> list[Any]:
    indices = np.resize(np.array([0, 2, 4]), 3 * N)
    return [np.ones(3 * N), indices, np.arange(0, 3 * N + 1, 3), np.ones((N, WIDTH))]


def _examples() -> np.ndarray:
    made = np.zeros(N, visits.EXAMPLE)
    made["y"] = made["weight"] = made["curvature"] = 1
    return made


def _samples() -> np.ndarray:
    made = np.zeros(N, multiclass.SAMPLE)
    made["weight"] = made["curvature"] = 1
    return made


def _lanes(n: int) -> np.ndarray:
    return np.zeros((n, multiclass.LANES))


def _many() -> tuple[list[np.ndarray], ...]:
    return tuple([np.ones(3), np.ones((2, 2))] for _ in range(3))


def _dense() -> checks.Call:
    return checks.dense_call(KERNEL, tuple(np.ones(4) for _ in range(3)), (0.1, 0.9), 0, 1.0)


def _whole() -> checks.Call:
    arrays = tuple(np.ones((5, 2)) for _ in range(3))
    return checks.dense_call(KERNEL, arrays, (0.1, 0.9), 0, 1.0)


def _sparse(workspace: Workspace | None = None) -> checks.Call:
    arrays = np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))
    ids = np.array([0, 4, 0])
    return sparse_checks.sparse_call(KERNEL, arrays, ids, (0.1, 0.9), 0, 1.0, True, workspace)


def _list() -> checks.Call:
    return multi_tensor.many_call(KERNEL, _many(), (0.1, 0.9), 0, 1.0)


def _meanwhile() -> commit.Meanwhile:
    return commit.Meanwhile(lambda: ([], []), lambda: None)


def _entered() -> commit.Meanwhile:
    block = _meanwhile()
    block.__enter__()
    return block


def _undo() -> commit.Undo:
    return commit.Undo([np.ones(3)])


class Bindable:
    """A step, or a request of one."""

    fits, aggregates, variables = None, True, ()

    def release(self) -> None:
        """Release nothing."""

    def is_like(self, other: object) -> bool:
        """Whether it is the other one."""
        return self is other


def _as_given(grads: list[Any], variables: Any) -> list[Any]:
    return grads


def _bound() -> repetition.Bound:
    bound = repetition.Bound(Bindable(), Bindable(), (ADAGRAD,), 0)
    bound.settle(0, repetition.Unchanged([], []), None, None, True, False)
    return bound


def _repeats() -> repetition.Repeats:
    repeats = repetition.Repeats(_as_given, _as_given)
    repeats.keep(_bound())
    return repeats


class OnDevice:
    """An array that is said to be on a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype = array, array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__array_interface__, "stream": None}


@CFUNCTYPE(c_int, c_void_p)
def _queue(step: int) -> int:
    return 0


@CFUNCTYPE(c_int, c_void_p, POINTER(c_int))
def _find_device(address: int, device: Any) -> int:
    device[0] = 0
    return 0


@CFUNCTYPE(c_int, c_void_p, POINTER(c_int))
def _look(step: int, finite: Any) -> int:
    finite[0] = 1
    return 0


def _launch_arguments() -> list[Any]:
    functions = (
        capsule_of(_queue, b"tfopt.queue_step"),
        capsule_of(_find_device, b"tfopt.find_device"),
        capsule_of(_look, b"tfopt.look_at_gradients"),
    )
    arrays = [OnDevice(np.ones(3)), OnDevice(np.ones(3))]
    limits = (0, *[math.inf] * 5)
    part = (KERNEL, 0, 1, 1, 1, True, None, None)
    return [functions, print, 0, [part], arrays, [0], limits, [OnDevice(np.ones(3))]]


def _launch() -> commit.Launch:
    launch = commit.Launch(*_launch_arguments())
    assert launch.possible
    return launch


def _accepted() -> commit.Launch:
    launch = _launch()
    assert launch.takes([OnDevice(np.ones(3))])
    return launch


def _repetitions() -> repetition.Repetitions:
    repetitions = repetition.Repetitions([[0, 1]], [True])
    repetitions.add(0, KERNEL, _list())
    repetitions.accepts([np.ones(3), np.ones((2, 2))])
    return repetitions


class Owner:
    """An object with an attribute and a version."""

    def __init__(self) -> None:
        self.attribute = 1
        self._version = object()


def _places() -> feature_groups.Places:
    return feature_groups.Places(np.array([3, 9, 4]))


def _loop(*last: Any) -> list[Any]:
    return [*_rows(), np.arange(N), *last]


PRINTS = np.array([[1, 2], [3, 4]])
#: A call as it should be of each function that the stubs declare, made anew for each use.
GOOD: dict[str, Any] = {
    "arrays.coerce.of_torch": lambda: [np.ones(3), "x"],
    "arrays.coerce.as_array": lambda: [np.ones(3), "x"],
    "arrays.coerce.memory_address": lambda: [np.ones(3)],
    "arrays.coerce.placement": lambda: [np.ones(3)],
    "arrays.csr.ascends": lambda: [np.array([0, 2, 1]), np.array([0, 2, 3])],
    "arrays.csr.take": lambda: [*_rows()[:3], np.array([4, 0, 4]), D],
    "arrays.csr.dot": lambda: [*_rows()[:3], np.ones((D, 2))],
    "linear.ftrl.learn": lambda: [
        *_rows()[:3], np.arange(N), np.ones((N, 1)), np.ones(N), np.zeros(N),
        np.ones((D + 1, 1, 3)), np.ones((D + 1, 1)), np.ones((2, 2)), 2, "logistic_loss",
        1.0, True, 0.1, 0.1, 0.1, 0.1, 1, {"t_": 0, "_averaged": 0}, {"a": 1},
    ],
    "text.hashing.hash_columns": lambda: [
        np.arange(5), 4, np.zeros(5, np.int32), np.zeros(5, np.int8),
    ],
    "text.hashed_text.parse": lambda: [
        np.frombuffer(b"1,a\n0,b", np.uint8), True, [b"y", b"x"], b"\3\1", [(1, 0)], 8, 44, True,
        False, False,
    ],
    "text.libsvm.survey": lambda: [np.frombuffer(b"1 1:2.5\n-1 3:1", np.uint8), 9],
    "text.libsvm.parse": lambda: [np.frombuffer(b"1 1:2.5\n-1 3:1", np.uint8), True, 1, 9, True],
    "update.step_table.Kernel.__new__": lambda: [kernels["gradient_descent"].rule, 0],
    "update.checks.Call.sums": lambda: [_sparse()],
    "update.step_table.use_steps": lambda: [STEPS.capsule],
    "update.step_table.call_steps": lambda: [STEPS.capsule],
    "update.checks.dense_call": lambda: [
        KERNEL, (np.ones(4), np.ones(4), np.ones(4)), (0.1, 0.9), 0, 1.0, 1.0,
    ],
    "update.checks.checked_hypers": lambda: [
        KERNEL, tuple(np.ones((3, 2)) for _ in range(3)), np.array([0, 4, 0]), (0.1, 0.9), 0,
    ],
    "update.checks.step_arguments": lambda: [KERNEL, (0.1, 0.9), 0, 1.0, 1.0, True, True],
    "arrays.coerce.arrays_of": lambda: [[np.ones(3).__dlpack__()]],
    "update.deferred_rows.catch_up": lambda: [
        KERNEL, 0, (np.ones((5, 2)), np.ones((5, 2))), np.ones((4, 4)), 3,
        np.zeros(4, np.int8), np.array([0, 3]), np.zeros(5, np.int64), (0.9,),
    ],
    "update.clip.factor": lambda: [2.0, 0, 1.0, False],
    "update.clip.factors": lambda: [
        np.ones(2), np.zeros(2, np.int64), np.ones(2), np.ones(2), np.ones(2),
    ],
    "update.clip.scale_call": lambda: [[np.ones(3)], [np.ones(3)], 0.5, 1.0, False],
    "update.clip.round_call": lambda: [[np.ones(3, np.float16)], [np.ones(3, np.float32)]],
    "update.clip.Rounding.call_of": lambda: [
        clip.Rounding(), [np.ones(3, np.float16)], [np.ones(3, np.float32)],
    ],
    "update.clip.weigh_call": lambda: [
        [np.ones(3)],
        [[np.ones(3)], [np.ones(3)]],
        [0.5, 2.0],
        False,
        [np.ones(3)],
    ],
    "update.clip.scale_each_call": lambda: [np.ones(3), np.ones(3), np.ones(3), np.ones(3)],
    "update.clip.clamp_call": lambda: [np.ones(3), np.ones(3), np.zeros(3), np.ones(3)],
    "update.adjustments.gradients_of": lambda: [_list()],
    "update.adjustments.set_bounds": lambda: [_list(), [1.0, 2.0]],
    "update.adjustments.set_scales": lambda: [_list(), [1.0, 2.0]],
    "update.adjustments.set_rounding": lambda: [_list(), 3, 1, [0, 1]],
    "update.adjustments.set_cautious_decay": lambda: [_list(), 0.5],
    "arrays.aliasing.check_layouts": lambda: [[np.ones(3)], "x", True],
    "arrays.coerce.all_plain": lambda: [[np.ones(3)]],
    "arrays.aliasing.in_place": lambda: [np.ones(3), np.ones(3)],
    "arrays.aliasing.certainly_apart": lambda: [[np.ones(3)], [np.ones(3)]],
    "arrays.aliasing.Occupied.__new__": lambda: [[np.ones(3)]],
    "arrays.aliasing.Occupied.touches": lambda: [aliasing.Occupied([np.ones(3)]), np.ones(3)],
    "update.commit.Count.__new__": lambda: [np.array(3)],
    "update.commit.Count.next": lambda: [commit.Count(np.array(3))],
    "update.commit.Assign.__new__": lambda: [np.ones(3), np.zeros(3)],
    "update.commit.AssignRows.__new__": lambda: [
        np.ones((5, 2)), np.array([1, 4]), np.zeros((2, 2)),
    ],
    "update.commit.RowsOf.__new__": lambda: [_whole(), _sparse()],
    "update.commit.Attributes.__new__": lambda: [Owner(), {"attribute": 2}],
    "update.commit.Mark.__new__": lambda: [np.zeros(5, np.int64), np.array([1, 4]), 3],
    "update.commit.Meanwhile.__init__": lambda: [lambda: ([], []), lambda: None],
    "update.commit.Meanwhile.__enter__": lambda: [_meanwhile()],
    "update.commit.Meanwhile.__exit__": lambda: [_entered(), None, None, None],
    "update.commit.Undo.done": lambda: [_undo()],
    "update.commit.Undo.__init__": lambda: [[np.ones(3)], [Owner()]],
    "update.commit.Undo.__enter__": lambda: [_undo()],
    "update.commit.Undo.__exit__": lambda: [_undo(), ValueError, ValueError(), None],
    "update.commit.carry_out": lambda: [[_dense(), commit.Count(np.array(3))], _undo(), _undo()],
    "arrays.csr.check_indices": lambda: [np.array([1, 2]), 3, "ids"],
    "arrays.csr.check_csr": lambda: [*_rows()[:3], (N, D), "X"],
    "linear.visits.moments": lambda: [np.ones((N, WIDTH)), 0],
    "linear.coordinate_descent.descend_matrix": lambda: [
        np.eye(3), *np.ones((4, 3)), 0.0, 4
    ],
    "linear.coordinate_descent.descend_columns": lambda: [
        *_rows(), np.ones(M), *np.ones((2, N)), np.ones(M), np.zeros(N), 0.1, *np.ones((3, N)),
        0.0, 4
    ],
    "linear.interior_point.advance": lambda: [np.ones((9, N)), 0.5, 0],
    "linear.interior_point.predict": lambda: [np.ones((9, N)), np.ones(N), 0.5, 0],
    "linear.interior_point.correct": lambda: [np.ones((9, N)), np.ones(N), 0.5, 0.1, 0],
    "linear.interior_point.step": lambda: [
        np.ones((N, D)), np.ones((9, N)), np.zeros(D + 1), 1.0, True, 0.5, 1.0, 1.0
    ],
    "linear.second_order.gaps": lambda: [
        _examples(),
        *np.ones((2, N)),
        0.0,
        "squared_loss",
        1.0,
        0,
    ],
    "linear.second_order.derivatives": lambda: [
        _examples(),
        np.ones(N),
        0.0,
        "squared_loss",
        1.0,
        0,
    ],
    "linear.second_order.newton_system": lambda: [*_rows(), np.ones(N), np.ones(N), M, 0],
    "linear.second_order.tangents": lambda: [
        _examples(),
        np.ones(N),
        0.0,
        "squared_loss",
        1.0,
        (np.ones(N), np.ones(N), np.ones(N)),
        0,
    ],
    "linear.second_order.solve": lambda: [np.eye(3), np.ones(3), False, 0.0],
    "linear.hessian_products.product": lambda: [*_rows(), np.ones(N), np.ones(M + 1), 0, 0],
    "linear.hessian_products.diagonal": lambda: [*_rows(), np.ones(N), M, 0],
    "linear.hessian_products.tangent": lambda: [
        *_rows(), _examples(), np.zeros(M), 0.0, "squared_loss", 1.0, 0,
    ],
    "tf_sdca.fingerprint.of_strings": lambda: [["a", b"b" * 200]],
    "tf_sdca.fingerprint.of_bytes": lambda: [np.array([b"a", b"bcd"])],
    "tf_sdca.fingerprint_table.FingerprintTable.__len__": lambda: [
        fingerprint_table.FingerprintTable()
    ],
    "tf_sdca.fingerprint_table.FingerprintTable.fingerprints": lambda: [
        fingerprint_table.FingerprintTable()
    ],
    "tf_sdca.fingerprint_table.FingerprintTable.find": lambda: [
        fingerprint_table.FingerprintTable(), PRINTS.copy(),
    ],
    "tf_sdca.fingerprint_table.FingerprintTable.add": lambda: [
        fingerprint_table.FingerprintTable(), PRINTS.copy(),
    ],
    "update.multi_tensor.many_call": lambda: [KERNEL, _many(), (0.1, 0.9), 0, 1.0, 1.0],
    "update.repetition.gradients_of": lambda: [[(np.ones(3), ADAGRAD)], (ADAGRAD,)],
    "update.repetition.gradients_in": lambda: [
        {"a": [N]}, {"a": [np.ones(3)]}, {"a": [(N,)]}, (np.ndarray,),
    ],
    "update.repetition.Unchanged.__new__": lambda: [[Owner()], [[]]],
    "update.repetition.are_arrays": lambda: [[np.ones(2)]],
    "update.repetition.Unchanged.holds": lambda: [repetition.Unchanged([], [[]])],
    "update.repetition.Apart.__new__": lambda: [[np.ones(3)]],
    "update.repetition.Apart.holds": lambda: [repetition.Apart([np.ones(3)]), [np.ones(3)]],
    "update.repetition.Repetition.__new__": lambda: [KERNEL, _list()],
    "update.repetition.Repetition.takes": lambda: [
        repetition.Repetition(KERNEL, _list()), [np.ones(3), np.ones((2, 2))],
    ],
    "update.repetition.Repetition.call_with": lambda: [
        repetition.Repetition(KERNEL, _list()), {"lr": 0.1, "momentum": 0.9},
        {"use_nesterov": False}, 1.0, 1.0,
    ],
    "update.commit.Launch.__new__": _launch_arguments,
    "update.commit.Launch.clip": lambda: [_launch(), (1, *[math.inf] * 5)],
    "update.commit.Launch.follow": lambda: [_launch(), [_launch()]],
    "update.commit.Launch.finite": lambda: [_accepted()],
    "update.commit.Launch.takes": lambda: [_launch(), [OnDevice(np.ones(3))]],
    "update.commit.Launch.prepare": lambda: [_accepted(), MOMENTUM, 1.0],
    "update.commit.Launch.release": lambda: [_launch()],
    "update.repetition.Bound.__new__": lambda: [Bindable(), Bindable(), (ADAGRAD,), 0],
    "update.repetition.Bound.settle": lambda: [
        _bound(), 1, repetition.Unchanged([], []), repetition.Apart([np.ones(3)]), None, True,
        False,
    ],
    "update.repetition.Bound.begin": lambda: [_bound()],
    "update.repetition.Bound.holds": lambda: [_bound()],
    "update.repetition.Repeats.__new__": lambda: [_as_given, _as_given],
    "update.repetition.Repeats.keep": lambda: [repetition.Repeats(_as_given, _as_given), _bound()],
    "update.repetition.Repeats.of_pairs": lambda: [_repeats(), [(np.ones(3), ADAGRAD)], True],
    "update.repetition.Repeats.of_variables": lambda: [_repeats(), (ADAGRAD,), [np.ones(3)]],
    "update.repetition.Repeats.of_request": lambda: [_repeats(), Bindable()],
    "update.repetition.Repetitions.__new__": lambda: [[[0, 1]], [True]],
    "update.repetition.Repetitions.add": lambda: [_repetitions(), 0, KERNEL, _list()],
    "update.repetition.Repetitions.accepts": lambda: [
        _repetitions(), [np.ones(3), np.ones((2, 2))],
    ],
    "update.repetition.Repetitions.calls": lambda: [_repetitions(), MOMENTUM, 1.0],
    "update.repetition.Repetitions.release": lambda: [_repetitions()],
    "update.commit.Prepared.__new__": lambda: [[commit.Count(np.zeros((), np.int64))], [], True],
    "update.repetition.Repetition.release": lambda: [repetition.Repetition(KERNEL, _list())],
    "arrays.layout.use_halves": lambda: [STEPS.halves_capsule],
    "arrays.layout.dynamic_map": lambda: [7],
    "arrays.layout.encode": lambda: [np.ones(3, np.float32), np.zeros(1, SIGNED8), 3],
    "arrays.layout.decode": lambda: [np.zeros(1, SIGNED8), np.ones(3, np.float32), 3],
    "platform.locking.Held.__init__": lambda: [[]],
    "platform.locking.Held.__enter__": lambda: [locking.Held([])],
    "platform.locking.Held.__exit__": lambda: [locking.Held([]), None, None, None],
    "update.dedup.distinct_indices": lambda: [np.array([1, 2, 1]), Workspace()],
    "update.dedup.put_in_order": lambda: [np.array([2, 1]), np.array([0, 1, 0]), Workspace()],
    "update.dedup.add_rows": lambda: [
        np.ones((3, 2)), np.array([0, 1, 0]), np.zeros((2, 2)), float("inf"), 1.0,
        np.array([2, 1, 0]), np.ones(3),
    ],
    "update.dedup.add_many": lambda: [
        [(np.ones((3, 2)), np.array([0, 1, 0]), np.zeros((2, 2)), np.array([2, 1, 0]), np.ones(3))]
    ],
    "reduce.norms.use_sums": lambda: [STEPS.sums_capsule],
    "reduce.norms.norm": lambda: [[np.ones(3), np.ones((2, 2)).T], [1.0, 2.0]],
    "reduce.norms.span_sums": lambda: [np.ones((2, 2)).T],
    "reduce.norms.all_finite": lambda: [[np.ones(3), np.ones((2, 2)).T]],
    "reduce.norms.sum_of_squares": lambda: [np.ones(3)],
    "reduce.norms.slice_norms": lambda: [np.ones((2, 3)), 1, np.zeros(2), np.zeros(2, np.int64)],
    "update.sparse_checks.sparse_call": lambda: [
        KERNEL, (np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))), np.array([0, 4, 0]),
        (0.1, 0.9), 0, 1.0, True, Workspace(), 1.0, 1.0, 1.0,
    ],
    "update.sparse_checks.shared_rows_call": lambda: [
        KERNEL, (np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))), np.array([0, 2, 2, 1]),
        np.array([0, 4, 0, 1]), (0.1, 0.9), 0, 1.0, True, Workspace(), 1.0, False,
    ],
    "platform.runtime.pauses": lambda: [[(0.0, 1.0, 2.0)]],
    "platform.runtime.set_threads": lambda: [1],
    "platform.runtime.get_threads": list,
    "platform.runtime.allowed_threads": list,
    "platform.runtime.set_flush": lambda: [True],
    "platform.runtime.get_flush": list,
    "platform.runtime.has_openmp": list,
    "platform.runtime.has_v3": list,
    "platform.runtime.has_v4": list,
    "linear.visits.shuffled": lambda: [9, 4, 1, 1],
    "linear.visits.awake": lambda: [np.array([0, 1, 6], np.uint8), 2],
    "linear.visits.importance": lambda: [_examples(), np.ones(N), "squared_loss", 1.0, 1.0],
    "linear.visits.sampled": lambda: [np.ones(N), 1, 1],
    "linear.visits.weights_of": lambda: [*_rows(), _examples(), np.zeros(M), 1.0],
    "linear.visits.squared_norms": lambda: [np.ones(3 * N), _rows()[2], np.ones((N, WIDTH))],
    "linear.visits.predictions": lambda: [*_rows(), np.zeros(M), 0.0, 0],
    "linear.visits.terms": lambda: [_examples(), np.ones(N), np.ones(N), "squared_loss"],
    "linear.blocks.visit": lambda: _loop(
        _examples(), np.zeros(M), "squared_loss", 1.0, 1.0, 0.0, 0.0, 0.0, 1.0
    ),
    "linear.blocks.change": lambda: [np.ones(3), np.ones(3), 0.0, 1.0],
    "linear.blocks.excesses": lambda: [np.ones(3), np.ones(3), 0.0],
    "linear.blocks.kept": lambda: [1.0, 1.0, 1.0, 2, 1.0],
    "linear.multiclass.epoch": lambda: _loop(
        _samples(), _lanes(N), _lanes(N), _lanes(M), np.zeros(8), 8, "hinge_loss", 1.0, 1.0,
        0.0, 0.0,
    ),
    "linear.multiclass.predictions": lambda: [*_rows(), _lanes(M)],
    "linear.multiclass.weights_of": lambda: [*_rows(), _lanes(N), M],
    "tf_sdca.feature_groups.Places.__new__": lambda: [np.array([3, 9, 4])],
    "tf_sdca.feature_groups.count": lambda: [np.array([0, 0, 2]), np.zeros(3, np.int64)],
    "tf_sdca.feature_groups.fill": lambda: [
        np.zeros(4), np.zeros(4, np.int32), np.array([0, 2, 2]), np.array([0, 0, 2]),
        np.array([3, 9, 4]), np.ones(3), _places(), 0, np.full(3, -1),
    ],
    "tf_sdca.feature_groups.first_not_finite": lambda: [np.ones(3)],
    "linear.solver.epoch": lambda: _loop(
        _examples(), np.zeros(M), np.zeros((2, M)), np.zeros(N), np.zeros(N, np.uint8),
        "squared_loss", 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 2, 0,
    ),
    "linear.solver.epoch_of_sweeps": lambda: [
        *_rows(), _examples(), np.zeros(M), np.zeros(N, np.uint8), 1, 3, 0, "squared_loss", 1.0,
        1.0, 0.0, 0.0, 0.1,
    ],
    "update.pipeline.Turns.__new__": lambda: [[_dense(), _dense()], 1, 1.0],
    "update.pipeline.Turns.watched": lambda: [pipeline.Turns([_dense()], 0)],
    "update.pipeline.run_together": lambda: [[_dense(), _dense()]],
    "update.dense.run": lambda: [_dense()],
    "update.dense.apply": lambda: [
        KERNEL, (np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))), (0.1, 0.9), 0,
        np.array([0, 4, 0]), 1.0, 1.0,
    ],
}  # fmt: skip


# ---- wrong arguments

ANYTHING: list[Any] = [
    None, "x", b"x", 1.5, -1, 2**40, 2**70, float("nan"), [], (), {}, object(), Owner, [None],
    [[1], [1, 2]], [[np.ones(3)], [np.ones(2), np.ones(3)]], datetime.datetime_CAPI,
    np.array(3), np.array(1.5), np.float32(2), np.array("x"), np.array([None, 3]),
]  # fmt: skip
BLANK: list[Any] = []  # objects whose __init__ has not run
for _type in (
    step_table.Kernel, checks.Call, commit.Write, commit.Count, commit.Assign, commit.AssignRows,
    commit.Attributes, commit.Mark, commit.Meanwhile, commit.Undo, locking.Held, pipeline.Turns,
    aliasing.Occupied, feature_groups.Places, repetition.Apart, repetition.Repetition,
    repetition.Unchanged, repetition.Bound, repetition.Repeats, repetition.Repetitions,
    commit.Prepared, clip.Rounding,
):  # fmt: skip
    try:
        BLANK.append(_type.__new__(_type))
    except TypeError:
        continue


def _wrong_arrays(a: np.ndarray) -> list[Any]:
    rows = a if a.ndim else a.reshape(1)
    wrong = [
        a[None], a[..., None], rows[:-1], rows[:0], np.concatenate([rows, rows]), rows[::-1],
        np.repeat(rows, 2, 0)[::2], np.broadcast_to(rows[:1], rows.shape), np.asfortranarray(a),
        a.astype(a.dtype.newbyteorder(), copy=True), memoryview(a.copy()), a.tolist(),
        np.zeros(()), np.zeros(0), np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((2, 3)),
        np.zeros((1,) * 32), np.ma.masked_array(a), np.zeros(rows.shape, "V5"),
    ]  # fmt: skip
    still = a.copy()
    still.flags.writeable = False
    odd = np.zeros(a.nbytes + 1, np.int8)[1:].view(a.dtype).reshape(a.shape)
    odd[...] = a
    wrong += [still, odd]
    if a.dtype.kind in "if":
        others = "?", "i1", "i4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "O", "S3", "M8[s]"
        wrong += [a.astype(other) for other in others if other != a.dtype]
        values = (-1, 1, 7, 2**31, 2**62, -(2**63)) if a.dtype.kind == "i" else (
            np.nan, np.inf, -1, 0, 1e308
        )  # fmt: skip
        for value in values:
            bad = a.astype("i8" if a.dtype.kind == "i" else a.dtype)
            bad.flat[-1:] = value
            wrong += [bad, np.full_like(bad, value)]
    return wrong


def _wrong_numbers(value: float) -> list[Any]:
    if isinstance(value, float):
        return [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308, 5e-324, 0.5]
    return [-(2**63), -(2**31), -7, -1, 0, 1, 3, 7, 8, 9, 100, 2**61]


def wrong_arguments(value: Any) -> list[Any]:
    """Return wrong arguments to pass instead."""
    wrong = [*ANYTHING, *BLANK]
    if isinstance(value, np.ndarray):
        return wrong + _wrong_arrays(value)
    if isinstance(value, (int, float)):
        return wrong + _wrong_numbers(value)
    if isinstance(value, str):
        return [*wrong, "", "hinge_loss", "logistic_loss", "x" * 1000, "\ud800"]
    if isinstance(value, Rule):
        return [*wrong, *RULES, value._replace(slots=("m", "v")), value._replace(hypers=())]
    if isinstance(value, (list, tuple)):
        kind = type(value)
        wrong += [value[:-1], (*value, *value), [*value, *value], kind(value[::-1])]
        for k in range(len(value)):
            wrong += [kind([*value[:k], x, *value[k + 1 :]]) for x in wrong_arguments(value[k])]
        return wrong
    if isinstance(value, step_table.Kernel):
        return wrong + list(kernels.values())
    if isinstance(value, checks.Call):
        several = np.ones(4, "c8"), np.ones(4, "c8")
        scaled = clip.scale_call([np.ones(4)], [np.ones(4)], 0.5, 1.0, False)
        plain = checks.dense_call(kernels["gradient_descent"], several, (0.1,), 0, 1.0)
        return [*wrong, _sparse(), _sparse(Workspace()), _list(), plain, scaled]
    return wrong


# ---- calls


def target(name: str) -> Any:
    """Return the callable: a constructor for a class, a getter for a property."""
    folder, module, *path = name.split(".")
    found: Any = importlib.import_module(f"tfopt.kernels.{folder}.{module}")
    for part in path:
        if part in ("__init__", "__new__"):
            return found
        found = getattr(found, part)
    return found if callable(found) else found.__get__


def _finish(result: Any) -> None:
    """Carry out a call or a write that was accepted."""
    if isinstance(result, (checks.Call, commit.Write)):
        commit.carry_out([result])
    elif isinstance(result, commit.Undo):
        result.__exit__(ValueError, ValueError(), None)


def _controls(flush: bool | None = None) -> int:
    """Return how this thread rounds and flushes, of an x86; set whether it flushes denormals."""
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        return 0
    library = ctypes.CDLL(None)  # whose libm is loaded, whatever its name
    environment = (ctypes.c_uint32 * 8)()
    library.fegetenv(environment)
    if flush is not None:
        environment[7] = environment[7] & ~0x8040 | 0x8040 * flush
        library.fesetenv(environment)
    return environment[7] & ~0x3F  # without the flags of what has happened


def _attempt(say: Any, name: str, function: Any, arguments: list[Any], what: str) -> None:
    say(f"{name} {what}\n")
    still = [(a, a.copy()) for a in arguments
             if isinstance(a, np.ndarray) and not a.flags.writeable]  # fmt: skip
    with contextlib.suppress(Exception):  # whichever: what matters is that the process goes on
        _finish(function(*arguments))
    for a, before in still:
        assert a.tobytes() == before.tobytes(), f"{name} {what} wrote to a read-only array"
    assert (DENORMAL / 2 > 0).all(), f"{name} {what} left denormals flushed"
    runtime.set_threads(1)
    runtime.set_flush(True)


def _call_wrongly(say: Any, name: str, good: Any, draw: random.Random) -> None:
    function = target(name)
    say(f"{name}, as it should be\n")
    for flushes in (True, False):
        before = _controls(flushes)
        _finish(function(*good()))
        assert _controls() == before, f"{name} changed how its caller computes"
    choices = [wrong_arguments(value) for value in good()]
    if name.count(".") == 3 and not name.endswith(("__init__", "__new__")):
        choices[0] = []  # Cython does not look at the type of a method's self
    for place, wrong in enumerate(choices):
        for k, instead in enumerate(wrong):
            arguments = good()
            arguments[place] = instead
            _attempt(say, name, function, arguments, f"argument {place}, wrong in way {k}")
    for first, second in itertools.combinations(range(len(choices)), 2):
        for _ in range(PAIRS if choices[first] else 0):
            arguments = good()
            ways = {place: draw.randrange(len(choices[place])) for place in (first, second)}
            for place, k in ways.items():
                arguments[place] = choices[place][k]
            _attempt(say, name, function, arguments, f"arguments in ways {ways}")
    for arguments in (good()[:-1], [*good(), None]) if choices else ([None],):
        _attempt(say, name, function, arguments, f"{len(arguments)} arguments")


def main(parts: list[str]) -> None:
    """Call all functions whose names begin with one of the given parts."""
    faulthandler.enable()
    np.seterr(all="ignore")
    write, flush = sys.stdout.write, sys.stdout.flush

    def say(line: str) -> None:
        write(line)
        flush()

    for name in declared():
        if not parts or name.startswith(tuple(parts)):
            _call_wrongly(say, name, GOOD[name], random.Random(name))


if __name__ == "__main__":
    main(sys.argv[1:])
