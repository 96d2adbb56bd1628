"""Laws of every public function and method that writes or computes.

The calls come from the public names (`traced_cases`), so a new function without one fails here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.traced_cases import NOT_CALLED, Call, calls, memory_of, public_names

import tfopt

CALLS: dict[str, list[Call]] = {}
for _call in calls():
    CALLS.setdefault(_call.name, []).append(_call)
EACH = pytest.mark.parametrize("made", CALLS.values(), ids=CALLS)
#: Calls of functions that write, of which there is one argument for each that is written.
WRITTEN = {name: [call for call in made if call.written] for name, made in CALLS.items()}
WRITING = pytest.mark.parametrize(
    "made", [made for made in WRITTEN.values() if made],
    ids=[name for name, made in WRITTEN.items() if made],
)  # fmt: skip


def test_every_public_function_has_calls() -> None:
    assert CALLS.keys() == public_names() - NOT_CALLED
    assert public_names() >= NOT_CALLED


def bits(value: Any) -> Any:
    """Return a nested result's bits, or what it is if it is no array."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return [bits(each) for each in value]
    array = np.asarray(value)
    return array.shape, array.tobytes()


def outcome(work: Callable[[], Any]) -> Any:
    """Return what a call returns, or how it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bits(work())
        except Exception as error:
            return type(error), str(error)


def arguments_of(call: Call) -> tuple[Callable[..., Any], dict[str, Any]]:
    given = call.make()
    function = call.function(given)
    arguments = {k: v for k, v in given.items() if k != "self" and not _is_models(call, k)}
    return function, given | {"": arguments}


def _is_models(call: Call, name: str) -> bool:
    return call.name.startswith("SDCAModel") and name == "weights"


def nested(result: Any) -> Any:
    """Return what a traced function may return: no tuples with names."""
    return tuple(map(nested, result)) if isinstance(result, (list, tuple)) else result


def twice(call: Call, traced: bool) -> Any:
    """Return the outcomes of two calls in one function, called twice, and what is in memory."""
    function, given = arguments_of(call)

    def body() -> Any:
        return nested(function(**given[""])), nested(function(**given[""]))

    run = tfopt.function(body) if traced else body
    results = [outcome(run) for _ in range(2)]
    return results, [bits(array) for array in memory_of(given)]


@EACH
def test_traced_is_eager(made: list[Call]) -> None:
    for call in made:
        assert twice(call, True) == twice(call, False), call.what


@EACH
def test_traced_with_computed_arguments_is_eager(made: list[Call]) -> None:
    """Gradients, tensors and numbers that the function itself computes, others at each call."""
    for call in made:
        if call.what.startswith("arrays") and "itself" in call.what:
            continue  # of an array, a trace knows the value it has then
        results = []
        for traced in (True, False):
            function, given = arguments_of(call)
            chosen = {
                name: value for name, value in given[""].items()
                if name not in call.written and _computable(name, value)
            }  # fmt: skip

            def body(factor: Any) -> Any:
                computed = {name: value * factor for name, value in chosen.items()}  # noqa: B023
                return nested(function(**{**given[""], **computed}))  # noqa: B023

            run = tfopt.function(body) if traced else body
            got = [outcome(lambda: run(np.float32(x))) for x in (1, 0.5)]  # noqa: B023
            results.append((got, [bits(array) for array in memory_of(given)]))
        assert results[0] == results[1], call.what


def _computable(name: str, value: Any) -> bool:
    if name in ("axes", "input", "order", "indices"):
        return False
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and name != "out"


@WRITING
def test_a_value_that_a_tape_has_read_stays(made: list[Call]) -> None:
    for call in made:
        if "variable" not in call.what and not call.name.startswith("Variable"):
            continue
        function, given = arguments_of(call)
        variables = [
            v
            for name in call.written
            for v in _listed(given[name])
            if isinstance(v, tfopt.Variable)
        ]
        before = [np.array(v) for v in variables]
        with tfopt.GradientTape(persistent=True) as tape:
            squares = [v * v for v in variables]
            kept = [v[...] for v in variables]
        outcome(lambda: function(**given[""]))  # noqa: B023
        for v, old, square, tensor in zip(variables, before, squares, kept, strict=True):
            assert bits(tensor) == bits(old), call.what
            assert bits(tape.gradient(square, v)) == bits(old + old), call.what


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


#: What no argument of these can be; each is tried in the place of each argument.
WRONG = (None, "wrong", np.ones((2, 2, 2, 2)), [np.ones(5), None])


@EACH
def test_a_refused_call_changes_nothing(made: list[Call]) -> None:
    """And it is refused alike in a traced function."""
    for call in made[:1]:
        _, known = arguments_of(call)
        for name in known[""]:
            for wrong in WRONG:
                errors = []
                for traced in (False, True):
                    function, given = arguments_of(call)
                    given[""][name] = wrong
                    before = [bits(array) for array in memory_of(given)]

                    def body() -> Any:
                        return nested(function(**given[""]))  # noqa: B023

                    got = outcome(tfopt.function(body) if traced else body)
                    failed = isinstance(got, tuple) and isinstance(got[0], type)
                    errors.append(got[0] if failed else None)
                    if failed:
                        after = [bits(array) for array in memory_of(given)]
                        assert before == after, (call.what, name, wrong)
                assert errors[0] == errors[1], (call.what, name, wrong)
