"""State besides arrays that threads share: traces, variables' values, names, files, settings."""

from __future__ import annotations

import copy
import io
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common.step_cases import everything

import tfopt
from campaign.calls import one
from tfopt import GradientTape, Variable, checkpoints, optimizers, raw_ops
from tfopt.linear_model import SDCAClassifier

__all__ = ["CASES", "CROWD", "at_once"]

#: Threads that work at once.
CROWD = 8


def at_once(works: list[Callable[[], Any]]) -> None:
    """Carry out functions in threads that begin together; raise what any raises."""
    barrier, raised = threading.Barrier(len(works)), []

    def carry_out(work: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=carry_out, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def results(works: list[Callable[[], Any]]) -> list[Any]:
    """Return what functions return in threads that begin together."""
    found: dict[int, Any] = {}
    at_once([lambda k=k, work=work: found.update({k: work()}) for k, work in enumerate(works)])
    return [found[k] for k in range(len(works))]


@tfopt.custom_gradient
def _halved(x: Any) -> Any:
    return x * 1.0, lambda g: g / 2


def _functions(random: np.random.Generator) -> int:
    """All threads call one function first, and ask for gradients of any order first."""
    weights = Variable(random.standard_normal((4, 3)))
    points = [random.standard_normal((n, 4)) for n in (5, 6)]

    def made() -> Any:
        @tfopt.function
        def f(x: Any) -> Any:
            return np.sum(_halved(np.tanh(np.matmul(x, weights))) ** 2)

        return f

    def derivatives(f: Any, x: Any) -> list[bytes]:
        x = tfopt.constant(x)
        with GradientTape(persistent=True) as outer:
            outer.watch(x)
            with GradientTape() as inner:
                value = f(x)
            slope = inner.gradient(value, weights)
            bend = np.sum(slope * slope)
        second = outer.gradient(bend, [x, weights])
        return [each.numpy().tobytes() for each in (value, slope, *second)]

    one_by_one, together = made(), made()
    expected = [derivatives(one_by_one, x) for x in points]
    works = [lambda k=k: derivatives(together, points[k % 2]) for k in range(CROWD)]
    assert results(works) == expected * (CROWD // 2)
    assert together.trace_count == one_by_one.trace_count == 2
    return CROWD


class _Slotted:
    """Something that no weak reference can be made to."""

    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @tfopt.function
    def scaled(self, x: Any) -> Any:
        return x * self.factor


def _methods(random: np.random.Generator) -> int:
    """Methods are traced for more instances than are kept, by all threads."""

    def work() -> None:
        for factor in range(20):
            assert float(_Slotted(factor).scaled(np.float64(2))) == 2 * factor

    at_once([work] * CROWD)
    return 20 * CROWD


def _readers(random: np.random.Generator) -> int:
    """Some threads step a variable under its lock, others differentiate what they read of it."""
    size = int(one(random, (3, 5000)))
    v, optimizer = Variable(np.zeros(size)), optimizers.SGD(1.0, use_locking=True)
    optimizer.apply_gradients([(np.ones(size), v)])

    def step() -> None:
        for _ in range(20):
            optimizer.apply_gradients([(np.ones(size), v)])

    def read() -> None:
        for _ in range(20):
            with v.lock:
                with GradientTape() as tape:
                    squares = v * v
                (slope,) = {*tape.gradient(squares, v).numpy().tolist()}
                assert squares.numpy().tolist() == [slope * slope / 4] * size

    at_once([step, read] * (CROWD // 2))
    assert (v.numpy() == -1 - 20 * (CROWD // 2)).all()
    return 20 * CROWD


def _recorded_writes(random: np.random.Generator) -> int:
    """Functions of all threads write to one array, which they have not seen before."""
    array = np.zeros(300)

    def descend() -> None:
        @tfopt.function
        def step(by: Any) -> None:
            raw_ops.ApplyGradientDescent(var=array, alpha=1.0, delta=by, use_locking=True)

        for _ in range(5):
            step(np.ones(300))

    at_once([descend] * CROWD)
    assert (array == -5 * CROWD).all()
    return 5 * CROWD


def _names(random: np.random.Generator) -> int:
    """Names are given, and looked up, by all threads."""
    known = Variable(1.0, name=f"known {random.integers(2**62)}")

    def made() -> list[str]:
        kept = [Variable(1.0, name=f"{known.name}, {k}") for k in range(20)]
        assert tfopt.get_variable_by_name(known.name) is known and kept
        return [optimizers.SGD(name="").name for _ in range(20)]

    names = [name for of_thread in results([made] * CROWD) for name in of_thread]
    assert len({*names}) == len(names)
    return 20 * CROWD


def _files(random: np.random.Generator) -> int:
    """Some threads save what others step, to one file, and load it."""
    v, optimizer = Variable(np.zeros(2000)), optimizers.SGD(1.0, 0.5, use_locking=True)
    grads = np.ones(2000)
    optimizer.step([v], [grads])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state" + one(random, (".npz", ".safetensors")))

        def step() -> None:
            for _ in range(20):
                optimizer.step([v], [grads])

        def save() -> None:
            for _ in range(5):
                with v.lock:
                    state = copy.deepcopy({"v": v.numpy(), **optimizer.state_dict([v])})
                checkpoints.save(path, state)
                loaded = checkpoints.load(path)
                resumed, again = optimizers.SGD(1.0, 0.5), optimizers.SGD(1.0, 0.5)
                w = Variable(loaded.pop("v"))
                resumed.load_state_dict(loaded, [w])
                same = Variable(np.zeros(2000))
                for _ in range(int(resumed.iterations)):
                    again.step([same], [grads])
                assert everything(resumed, [w]) == everything(again, [same])

        at_once([step, save] * (CROWD // 2))
    return 5 * CROWD


def _inputs(random: np.random.Generator) -> int:
    """Texts are read, and models fitted, by all threads, while one sets the number of threads."""
    text = "\n".join(f"{k % 2} {k % 7 + 1}:{random.random()}" for k in range(5000)).encode()
    X = random.standard_normal((200, 6))

    def read() -> bytes:
        found = tfopt.io.read_libsvm(io.BytesIO(text))
        return found.X.data.tobytes() + found.y.tobytes()

    def fit() -> bytes:
        return SDCAClassifier(max_iter=5).fit(X, X[:, 0] > 0).coef_.tobytes()

    def settings() -> None:
        for k in range(20):
            tfopt.threads.set_num_threads(1 + k % 4)

    with warnings.catch_warnings():  # whose filters all threads share
        warnings.simplefilter("ignore")
        expected = [read(), fit()] * (CROWD // 2)
        assert results([*[read, fit] * (CROWD // 2), settings])[:CROWD] == expected
    return CROWD


CASES = (_functions, _methods, _readers, _recorded_writes, _names, _files, _inputs)
