"""Call what the stubs of the kernels declare, first as it should be, then in every wrong way.

Run as a script, it prints each call before it makes it, so that one that kills the process is the
last that is printed.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import faulthandler
import importlib
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tfopt
from tfopt.core.workspace import Workspace
from tfopt.kernels import (
    calls,
    clip,
    commit,
    fingerprint_table,
    groups,
    kernels,
    locking,
    row_calls,
    runtime,
    sdca,
    sdca_classes,
    sdca_pack,
    together,
)
from tfopt.kernels import cpu as instruction_set
from tfopt.rules import RULES, Rule

STUBS = sorted((Path(tfopt.__file__).parent / "kernels").glob("*.pyi"))
PAIRS = 12  # calls with two wrong arguments, of each function


def declared() -> list[str]:
    """Return what the stubs declare, as module.name or module.class.name."""
    found = []
    for stub in STUBS:
        for node in ast.parse(stub.read_text()).body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            found += [
                f"{stub.stem}.{prefix}{function.name}"
                for function in inner
                if isinstance(function, ast.FunctionDef)
            ]
    return found


N, D, WIDTH = 6, 5, 2
M = D + WIDTH
KERNEL = kernels["keras_momentum"]
ADAGRAD = kernels["adagrad"]
STEPS = importlib.import_module(f"tfopt.kernels.steps_{instruction_set}")


def _rows() -> list[Any]:
    indices = np.resize(np.array([0, 2, 4]), 3 * N)
    return [np.ones(3 * N), indices, np.arange(0, 3 * N + 1, 3), np.ones((N, WIDTH))]


def _examples() -> np.ndarray:
    made = np.zeros(N, sdca.EXAMPLE)
    made["y"] = made["weight"] = made["curvature"] = 1
    return made


def _samples() -> np.ndarray:
    made = np.zeros(N, sdca_classes.SAMPLE)
    made["weight"] = made["curvature"] = 1
    return made


def _lanes(n: int) -> np.ndarray:
    return np.zeros((n, sdca_classes.LANES))


def _many() -> tuple[list[np.ndarray], ...]:
    return tuple([np.ones(3), np.ones((2, 2))] for _ in range(3))


def _dense() -> calls.Call:
    return calls.dense_call(KERNEL, tuple(np.ones(4) for _ in range(3)), (0.1, 0.9), 0, 1.0)


def _sparse(workspace: Workspace | None = None) -> calls.Call:
    arrays = np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))
    ids = np.array([0, 4, 0])
    return row_calls.sparse_call(KERNEL, arrays, ids, (0.1, 0.9), 0, 1.0, True, workspace)


def _list() -> calls.Call:
    return groups.many_call(KERNEL, _many(), (0.1, 0.9), 0, 1.0)


def _undo() -> commit.Undo:
    return commit.Undo([np.ones(3)])


class Owner:
    """An object with an attribute."""

    def __init__(self) -> None:
        self.attribute = 1


def _places() -> sdca_pack.Places:
    return sdca_pack.Places(np.array([3, 9, 4]))


def _loop(*last: Any) -> list[Any]:
    return [*_rows(), np.arange(N), *last]


PRINTS = np.array([[1, 2], [3, 4]])
#: A call as it should be of each function that the stubs declare, made anew for each use.
GOOD: dict[str, Any] = {
    "arguments.as_array": lambda: [np.ones(3), "x"],
    "arguments.memory_address": lambda: [np.ones(3)],
    "calls.Kernel.__new__": lambda: [kernels["gradient_descent"].rule, 0],
    "calls.Call.sums": lambda: [_sparse()],
    "calls.use_steps": lambda: [STEPS.capsule],
    "calls.call_steps": lambda: [STEPS.capsule],
    "calls.dense_call": lambda: [
        KERNEL, (np.ones(4), np.ones(4), np.ones(4)), (0.1, 0.9), 0, 1.0, 1.0,
    ],
    "calls.read_hyper": lambda: [KERNEL, 0, 0.1, 0, True],
    "calls.step_arguments": lambda: [KERNEL, (0.1, 0.9), 0, 1.0, 1.0, True, True],
    "capsules.arrays_of": lambda: [[np.ones(3).__dlpack__()]],
    "catch_up.catch_up": lambda: [
        KERNEL, 0, (np.ones((5, 2)), np.ones((5, 2))), np.ones((4, 4)), 3,
        np.zeros(4, np.int8), np.array([0, 3]), np.zeros(5, np.int64), (0.9,),
    ],
    "clip.factor": lambda: [2.0, 0, 1.0, False],
    "clip.factors": lambda: [
        np.ones(2), np.zeros(2, np.int64), np.ones(2), np.ones(2), np.ones(2),
    ],
    "clip.scale_call": lambda: [[np.ones(3)], [np.ones(3)], 0.5, 1.0, False],
    "clip.scale_each_call": lambda: [np.ones(3), np.ones(3), np.ones(3), np.ones(3)],
    "clip.clamp_call": lambda: [np.ones(3), np.ones(3), np.zeros(3), np.ones(3)],
    "clip.gradients_of": lambda: [_list()],
    "clip.set_bounds": lambda: [_list(), [1.0, 2.0]],
    "clip.set_scales": lambda: [_list(), [1.0, 2.0]],
    "clip.check_layouts": lambda: [[np.ones(3)], "x", True],
    "clip.all_plain": lambda: [[np.ones(3)]],
    "clip.in_place": lambda: [np.ones(3), np.ones(3)],
    "clip.certainly_apart": lambda: [[np.ones(3)], [np.ones(3)]],
    "commit.Count.__new__": lambda: [np.array(3)],
    "commit.Assign.__new__": lambda: [np.ones(3), np.zeros(3)],
    "commit.AssignRows.__new__": lambda: [
        np.ones((5, 2)), np.array([1, 4]), np.zeros((2, 2)),
    ],
    "commit.Attributes.__new__": lambda: [Owner(), {"attribute": 2}],
    "commit.Mark.__new__": lambda: [np.zeros(5, np.int64), np.array([1, 4]), 3],
    "commit.Undo.done": lambda: [_undo()],
    "commit.Undo.__init__": lambda: [[np.ones(3)], [Owner()]],
    "commit.Undo.__enter__": lambda: [_undo()],
    "commit.Undo.__exit__": lambda: [_undo(), ValueError, ValueError(), None],
    "commit.carry_out": lambda: [[_dense(), commit.Count(np.array(3))], _undo(), _undo()],
    "csr.check_indices": lambda: [np.array([1, 2]), 3, "ids"],
    "csr.check_csr": lambda: [*_rows()[:3], (N, D), "X"],
    "curvature.gaps": lambda: [_examples(), np.ones(N), 0.0, "squared_loss", 1.0, 0],
    "curvature.losses": lambda: [_examples(), np.ones(N), 0.0, "squared_loss", 1.0, 0],
    "curvature.derivatives": lambda: [_examples(), np.ones(N), 0.0, "squared_loss", 1.0, 0],
    "curvature.hessian": lambda: [*_rows(), np.ones(N), M, 0],
    "curvature.solve": lambda: [np.eye(3), np.ones(3)],
    "curvature_products.product": lambda: [*_rows(), np.ones(N), np.ones(M + 1), 0, 0],
    "curvature_products.diagonal": lambda: [*_rows(), np.ones(N), M, 0],
    "curvature_products.tangent": lambda: [
        *_rows(), _examples(), np.zeros(M), 0.0, "squared_loss", 1.0,
    ],
    "fingerprint.of_strings": lambda: [["a", b"b" * 200]],
    "fingerprint.of_bytes": lambda: [np.array([b"a", b"bcd"])],
    "fingerprint_table.FingerprintTable.__len__": lambda: [fingerprint_table.FingerprintTable()],
    "fingerprint_table.FingerprintTable.fingerprints": lambda: [
        fingerprint_table.FingerprintTable()
    ],
    "fingerprint_table.FingerprintTable.find": lambda: [
        fingerprint_table.FingerprintTable(), PRINTS.copy(),
    ],
    "fingerprint_table.FingerprintTable.add": lambda: [
        fingerprint_table.FingerprintTable(), PRINTS.copy(),
    ],
    "groups.many_call": lambda: [KERNEL, _many(), (0.1, 0.9), 0, 1.0, 1.0],
    "layout.use_halves": lambda: [STEPS.halves_capsule],
    "locking.Held.__init__": lambda: [[]],
    "locking.Held.__enter__": lambda: [locking.Held([])],
    "locking.Held.__exit__": lambda: [locking.Held([]), None, None, None],
    "merge.distinct_indices": lambda: [np.array([1, 2, 1]), Workspace()],
    "merge.put_in_order": lambda: [np.array([2, 1]), np.array([0, 1, 0]), Workspace()],
    "merge.add_rows": lambda: [
        np.ones((3, 2)), np.array([0, 1, 0]), np.zeros((2, 2)), float("inf"), 1.0,
    ],
    "norms.use_sums": lambda: [STEPS.sums_capsule],
    "norms.norm": lambda: [[np.ones(3), np.ones((2, 2)).T], [1.0, 2.0]],
    "norms.all_finite": lambda: [[np.ones(3), np.ones((2, 2)).T]],
    "norms.sum_of_squares": lambda: [np.ones(3)],
    "norms.slice_norms": lambda: [np.ones((2, 3)), 1, np.zeros(2), np.zeros(2, np.int64)],
    "row_calls.sparse_call": lambda: [
        KERNEL, (np.ones((5, 2)), np.ones((5, 2)), np.ones((3, 2))), np.array([0, 4, 0]),
        (0.1, 0.9), 0, 1.0, True, Workspace(), 1.0,
    ],
    "row_calls.set_summing": lambda: [_sparse(Workspace()), 1.0, 1.0],
    "runtime.set_threads": lambda: [1],
    "runtime.get_threads": list,
    "runtime.allowed_threads": list,
    "runtime.set_flush": lambda: [True],
    "runtime.get_flush": list,
    "runtime.has_openmp": list,
    "runtime.has_v3": list,
    "sdca.shuffled": lambda: [9, 4, 1, 1],
    "sdca.importance": lambda: [_examples(), np.ones(N), "squared_loss", 1.0],
    "sdca.sampled": lambda: [np.ones(N), 1, 1],
    "sdca.epoch": lambda: _loop(
        _examples(), np.zeros(N), np.zeros(M), "squared_loss", 1.0, 0.0, 1.0
    ),
    "sdca.weights_of": lambda: [*_rows(), _examples(), np.zeros(M), 1.0],
    "sdca.squared_norms": lambda: [np.ones(3 * N), _rows()[2], np.ones((N, WIDTH))],
    "sdca.predictions": lambda: [*_rows(), np.zeros(M), 0.0, 0],
    "sdca.terms": lambda: [_examples(), np.ones(N), np.ones(N), "squared_loss"],
    "sdca_blocks.visit": lambda: _loop(
        _examples(), np.zeros(M), "squared_loss", 1.0, 1.0, 0.0, 0.0, 0.0, 1.0
    ),
    "sdca_blocks.change": lambda: [np.ones(3), np.ones(3), 0.0, 1.0],
    "sdca_blocks.excesses": lambda: [np.ones(3), np.ones(3), 0.0],
    "sdca_blocks.kept": lambda: [1.0, 1.0, 1.0, 2, 1.0],
    "sdca_classes.epoch": lambda: _loop(
        _samples(), _lanes(N), _lanes(N), _lanes(M), np.zeros(8), 8, "hinge_loss", 1.0, 1.0,
        0.0, 0.0,
    ),
    "sdca_classes.predictions": lambda: [*_rows(), _lanes(M)],
    "sdca_classes.weights_of": lambda: [*_rows(), _lanes(N), M],
    "sdca_pack.Places.__new__": lambda: [np.array([3, 9, 4])],
    "sdca_pack.count": lambda: [np.array([0, 0, 2]), np.zeros(3, np.int64)],
    "sdca_pack.fill": lambda: [
        np.zeros(4), np.zeros(4, np.int32), np.array([0, 2, 2]), np.array([0, 0, 2]),
        np.array([3, 9, 4]), np.ones(3), _places(), 0, np.full(3, -1),
    ],
    "sdca_pack.first_not_finite": lambda: [np.ones(3)],
    "sdca_solver.epoch": lambda: _loop(
        _examples(), np.zeros(M), np.zeros((2, M)), np.zeros(N), "squared_loss", 1.0, 1.0, 0.0,
        0.0, 0.0, 1.0, 2, 0,
    ),
    "together.Turns.__new__": lambda: [[_dense(), _dense()], 1, 1.0],
    "together.Turns.watched": lambda: [together.Turns([_dense()], 0)],
    "together.use_sums": lambda: [STEPS.sums_capsule],
    "together.run_together": lambda: [[_dense(), _dense()]],
    "training.run": lambda: [_dense()],
    "training.apply": lambda: [
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
    calls.Kernel, calls.Call, commit.Write, commit.Count, commit.Assign, commit.AssignRows,
    commit.Attributes, commit.Mark, commit.Undo, locking.Held, together.Turns, sdca_pack.Places,
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
    """Return what might be passed instead."""
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
    if isinstance(value, calls.Kernel):
        return wrong + list(kernels.values())
    if isinstance(value, calls.Call):
        several = np.ones(4, "c8"), np.ones(4, "c8")
        scaled = clip.scale_call([np.ones(4)], [np.ones(4)], 0.5, 1.0, False)
        plain = calls.dense_call(kernels["gradient_descent"], several, (0.1,), 0, 1.0)
        return [*wrong, _sparse(), _sparse(Workspace()), _list(), plain, scaled]
    return wrong


# ---- calls


def target(name: str) -> Any:
    """Return what to call: of a class its constructor, of a property what reads it."""
    module, *path = name.split(".")
    found: Any = importlib.import_module(f"tfopt.kernels.{module}")
    for part in path:
        if part in ("__init__", "__new__"):
            return found
        found = getattr(found, part)
    return found if callable(found) else found.__get__


def _finish(result: Any) -> None:
    """Carry out a call or a write that was accepted."""
    if isinstance(result, (calls.Call, commit.Write)):
        commit.carry_out([result])
    elif isinstance(result, commit.Undo):
        result.__exit__(ValueError, ValueError(), None)


def _attempt(say: Any, name: str, function: Any, arguments: list[Any], what: str) -> None:
    say(f"{name} {what}\n")
    still = [(a, a.copy()) for a in arguments
             if isinstance(a, np.ndarray) and not a.flags.writeable]  # fmt: skip
    with contextlib.suppress(Exception):  # whichever: what matters is that the process goes on
        _finish(function(*arguments))
    for a, before in still:
        assert a.tobytes() == before.tobytes(), f"{name} {what} wrote to a read-only array"
    runtime.set_threads(1)
    runtime.set_flush(True)


def _call_wrongly(say: Any, name: str, good: Any, draw: random.Random) -> None:
    function = target(name)
    say(f"{name}, as it should be\n")
    _finish(function(*good()))
    choices = [wrong_arguments(value) for value in good()]
    if name.count(".") == 2 and not name.endswith(("__init__", "__new__")):
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
    """Call all functions whose names begin with one of some words."""
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
