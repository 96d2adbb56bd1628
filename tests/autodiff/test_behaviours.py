"""Behaviours B1 to B72 and the conventions, against what TensorFlow answered or what is better."""

from __future__ import annotations

import json
from types import ModuleType

import numpy as np
import pytest
from golden.autodiff.conventions import CONVENTIONS, RECOMMENDED
from golden.autodiff.facades import Ours, plain, same
from golden.autodiff.more_behaviours import BEHAVIOURS
from golden.autodiff.recommended import FOLLOWS, OURS
from golden.autodiff.record import FILE

import tfopt
import tfopt_ref

RECORDED = json.loads(FILE.read_text())


def test_none_is_missing() -> None:
    assert {*FOLLOWS} == {*BEHAVIOURS} == {f"B{n}" for n in range(1, 73)}
    assert {*OURS} == {name for name, followed in FOLLOWS.items() if followed != "TensorFlow"}
    assert {*RECORDED} == {*BEHAVIOURS, *CONVENTIONS}
    assert {*RECOMMENDED} < {*CONVENTIONS}


#: What the specification says nothing of: functions that are traced or computed again, gradients
#: by another name, a decorator's forms, and calls that are refused.
UNSPECIFIED = {
    *(
        [
            "B2",
            "B15",
            "B21",
            "B22",
            "B24",
            "B32",
            "B33",
            "B38",
            "B40",
            "B43",
            "B47",
            "B50",
            "B53",
            "B54",
            "B55",
            "B56",
            "B57",
            "B58",
            "B59",
            "B60",
        ]
    ),
    *(["B61", "B70", "B71", "B72"]),
}
EACH = [
    pytest.param(package, name, id=f"{package.__name__}-{name}")
    for package in (tfopt, tfopt_ref)
    for name in BEHAVIOURS
    if package is tfopt or name not in UNSPECIFIED
]


@pytest.mark.parametrize(("impl", "name"), EACH)
def test_behaviour(impl: ModuleType, name: str) -> None:
    expected = OURS[name][1] if name in OURS else RECORDED[name]
    found = json.loads(json.dumps(plain(BEHAVIOURS[name](Ours(impl)))))
    assert same(found, expected), (found, expected)


#: Conventions of functions that the specification has no rules of.
COMPOSED = {
    "prod", "prod, two zeros", "std of a constant", "logsumexp", "logsumexp of -inf", "norm",
    "norm at 0", "norm 1", "norm inf", "cumprod", "cumprod, a zero", "reflect", "cholesky", "angle",
}  # fmt: skip
EACH_CONVENTION = [
    pytest.param(package, name, id=f"{package.__name__}-{name}")
    for package in (tfopt, tfopt_ref)
    for name in CONVENTIONS
    if package is tfopt or name not in COMPOSED
]


@pytest.mark.parametrize(("impl", "name"), EACH_CONVENTION)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_convention(impl: ModuleType, name: str) -> None:
    expected = RECOMMENDED.get(name, RECORDED[name])
    with np.errstate(all="ignore"):
        found = json.loads(json.dumps(plain(CONVENTIONS[name](Ours(impl)))))
    assert same(found, expected), (found, expected)


@pytest.mark.parametrize("name", [*OURS, *RECOMMENDED])
def test_the_table_says_so_only_where_it_differs(name: str) -> None:
    ours = OURS[name][1] if name in OURS else RECOMMENDED[name]
    assert not same(ours, RECORDED[name])


def test_lists_of_tensors_are_appended_as_their_stack_is() -> None:
    """NumPy makes an array of a list before it asks who else might know what to do with it."""
    numbers = [tfopt.constant(value) for value in (1.0, 2.0, 3.0)]
    more = tfopt.constant([4.0, 5.0])
    for given in ([numbers, more], [more, numbers]):
        with tfopt.GradientTape() as tape:
            tape.watch([*numbers, more])
            loss = np.sum(np.append(*given) * [1.0, 10.0, 100.0, 1e3, 1e4])
        *each, whole = tape.gradient(loss, [*numbers, more])
        found = [float(part) for part in each], whole.tolist()
        joined = [*found[0], *found[1]] if given[1] is more else [*found[1], *found[0]]
        assert joined == [1.0, 10.0, 100.0, 1e3, 1e4]
