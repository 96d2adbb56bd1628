"""State besides arrays that threads share: variables' values, traces, names, files, settings."""

from __future__ import annotations

import contextvars
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from campaign.shared_state import CASES, results

import tfopt
from tfopt import Variable
from tfopt.core import effects, engine


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_threads_at_once(case: Callable[[np.random.Generator], int]) -> None:
    """Each case of the campaign; there are more of each in the campaign itself."""
    before = tfopt.threads.get_num_threads()
    try:
        case(np.random.default_rng(zlib.crc32(case.__name__.encode())))
    finally:
        tfopt.threads.set_num_threads(before)


@pytest.mark.parametrize("inherits", [False, True])
def test_a_thread_records_for_no_tape_of_another(inherits: bool) -> None:
    """Even if it inherits the context, as all threads do in a Python without a GIL."""
    v, w = Variable(2.0), Variable(3.0)
    found: list[Any] = []

    def multiply() -> None:
        with tfopt.GradientTape() as own:
            own_product = v * w
        found.extend((v * w, own.gradient(own_product, [v, w])))

    with tfopt.GradientTape() as tape:
        square = v * v
        context = contextvars.copy_context() if inherits else contextvars.Context()
        thread = threading.Thread(target=context.run, args=(multiply,))
        thread.start()
        thread.join()
        both = square + found[0]
    assert [float(each) for each in found[1]] == [3, 2]
    assert float(tape.gradient(both, v)) == 4
    assert tape.watched_variables() == (v,)


def test_threads_that_record_writes_to_an_array_share_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or tensors that lie in its memory would be given copies before the writes of one alone."""

    def slow(*args: Any, **kwargs: Any) -> Variable:
        time.sleep(0.01)  # so that all threads come in the meantime
        return Variable(*args, **kwargs)

    monkeypatch.setattr(effects, "_variables", [slow])
    array = np.zeros(3)
    found = results([lambda: effects.readable(array)] * 4)
    assert {id(each) for each in found} == {id(found[0])}


@pytest.mark.parametrize("many", [False, True])
def test_results_from_a_value_stay_while_another_thread_writes(many: bool) -> None:
    """A view that an operation returns after the write is given a copy at once."""
    v = Variable(np.zeros(4))

    def halves(a: Any) -> Any:
        writer = threading.Thread(target=lambda: v.assign(np.ones(4)))
        writer.start()
        writer.join()
        return (a[:2], a[2:]) if many else a[2:]

    made = engine.apply(engine.Op("halves", halves, many=many), (v,))
    v.assign(np.full(4, 2.0))
    for x in made if many else [made]:
        assert x.numpy().tolist() == [1, 1]


def test_reading_without_the_lock_finds_some_numbers() -> None:
    """Not in the campaign: the sanitizer of threads rightly calls that a race."""
    v, optimizer = Variable(np.zeros(5)), tfopt.optimizers.SGD(1.0, use_locking=True)

    def step() -> None:
        for _ in range(30):
            optimizer.apply_gradients([(np.ones(5), v)])

    def read() -> None:
        for _ in range(30):
            with tfopt.GradientTape() as tape:
                squares = np.reshape(v, (1, 5))[0] * np.transpose(v)
            assert tape.gradient(squares, v).shape == (5,)

    results([step, read, read, read])
    assert v.numpy().tolist() == [-30] * 5
