"""The table of losses against their definitions, and against those of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from common.linear_losses import CORNERED, DEFINITIONS, conjugate, least, parameter_of, phi
from hypothesis import example, given
from hypothesis import strategies as st

from tfopt.linear_model.losses import LOSSES as TABLE
from tfopt.linear_model.losses import loss_named
from tfopt_ref import losses

LOSSES = {loss.kernel: loss for loss in TABLE.values() if not loss.is_joint}
each_loss = pytest.mark.parametrize("name", LOSSES)


def parameter(name: str) -> float:
    return parameter_of(name, 0.6)


def labels(name: str, n: int) -> np.ndarray:
    labels = DEFINITIONS[name.removesuffix("_loss")].labels
    return {
        "counts": np.arange(n) % 4 * 1.0,
        "amounts": np.arange(n) % 4 + 0.5,
    }.get(labels, np.where(np.arange(n) % 2, 1.0, -1.0))


@each_loss
@given(z=st.lists(st.floats(-30, 30), min_size=1, max_size=20))
@example(z=[0.0, -1.192092896e-07])  # where Poisson's slope is the difference of near numbers
def test_values_and_derivatives_are_those_of_the_specification(name: str, z: list[float]) -> None:
    own, at = parameter(name), np.array(z)
    loss, twin = loss_named(name, own), losses.loss_named(name, own)
    y = labels(name, at.size)
    pairs = list(zip(at.tolist(), y.tolist(), strict=True))
    rounding = 0.0 if loss.is_classification else 4e-16 * np.abs(y)  # of a number less its label
    for found, function in (
        (loss.value(at, y), twin.value),
        (loss.gradient(at, y), twin.slope),
    ):
        expected = np.array([function(*pair) for pair in pairs])
        assert np.all(np.abs(found - expected) <= 1e-12 * np.abs(expected) + rounding)
    defined = phi(short := name.removesuffix("_loss"), at, y, own) + least(short, y)
    np.testing.assert_allclose(loss.value(at, y), defined, rtol=1e-9, atol=1e-9)


@each_loss
@given(a=st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_clipped_duals_are_the_nearest_with_a_finite_conjugate(name: str, a: list[float]) -> None:
    own = parameter(name)
    loss, twin = loss_named(name, own), losses.loss_named(name, own)
    y = labels(name, len(a))
    clipped = loss.clip_duals(np.array(a), y)
    expected = [twin.conjugate(*pair) for pair in zip(clipped.tolist(), y.tolist(), strict=True)]
    defined = conjugate(short := name.removesuffix("_loss"), clipped, y, own)
    np.testing.assert_allclose(expected, defined - least(short, y), rtol=1e-9, atol=1e-9)
    for before, after, label in zip(a, clipped.tolist(), y.tolist(), strict=True):
        assert before == after or np.isinf(twin.conjugate(before, label))
        if before != after:  # it is at the end of the range
            nearer = after + 1e-9 * np.sign(before - after)
            assert np.isinf(twin.conjugate(nearer, label))


@each_loss
def test_links_are_where_the_loss_of_the_mean_is_least(name: str) -> None:
    """Of labels with a mean p, the best constant prediction z has inverse_link(z) = p."""
    loss = LOSSES[name]
    z = np.linspace(-2, 2, 9)
    assert loss.inverse_link(z).shape == z.shape
    if name in ("logistic_loss", "poisson_loss", "squared_loss"):
        for p in (0.2, 0.7):
            mean = {"logistic_loss": lambda p: 2 * p - 1}.get(name, lambda p: p)(p)
            slopes = (
                p * loss.gradient(z, np.ones(9)) + (1 - p) * loss.gradient(z, -np.ones(9))
                if loss.is_classification
                else loss.gradient(z, np.full(9, mean))
            )
            np.testing.assert_allclose(slopes, loss.inverse_link(z) - p, atol=1e-12)
    assert loss.is_smooth == (name.removesuffix("_loss") not in CORNERED)
    labels = DEFINITIONS[name.removesuffix("_loss")].labels
    assert loss.is_classification == (labels == "classes")


@pytest.mark.parametrize("name", CORNERED)
@given(z=st.lists(st.floats(-3, 3), min_size=1, max_size=20))
def test_corners_are_where_the_derivative_jumps(name: str, z: list[float]) -> None:
    loss, at = loss_named(f"{name}_loss", parameter(name)), np.array(z)
    y = labels(f"{name}_loss", at.size)
    away, slopes, value = np.ones(at.size, bool), np.zeros(at.size), np.zeros(at.size)
    for place, low, high in loss.corners(y):
        away &= np.abs(at - place) > 1e-9
        slopes -= np.where(at < place, high, low)
        value += np.maximum(low * (place - at), high * (place - at))
    np.testing.assert_allclose(loss.gradient(at, y)[away], slopes[away], rtol=1e-12)
    np.testing.assert_allclose(loss.value(at, y), value, rtol=1e-12, atol=1e-12)


@each_loss
def test_losses_without_curvature_have_corners(name: str) -> None:
    assert bool(LOSSES[name].corners(np.ones(1))) == (not LOSSES[name].is_smooth)


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].is_linear_far])
@given(z=st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_far_is_the_way_to_where_a_loss_bends(name: str, z: list[float]) -> None:
    loss, at = loss_named(name, parameter(name)), np.array(z)
    y = labels(name, at.size)
    way, step = loss.far(at, y), 1e-6
    assert (loss.gradient(at - way + step, y) == loss.gradient(at, y))[way > 2 * step].all()
    assert (loss.gradient(at + way - step, y) == loss.gradient(at, y))[way > 2 * step].all()
    bends = [loss.gradient(at + s * (way + step), y) != loss.gradient(at, y) for s in (-1, 1)]
    assert (bends[0] | bends[1]).all()
