"""The cases of the self-test: every rule, clipping, SDCA's visits, storage, denormals."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

import tfopt
from tfopt.denormals import get_flush_denormals, set_flush_denormals
from tfopt.rules import DTYPES, RULES, Rule
from tfopt.selftest.inputs import Place, below, mixed, ordinary, placed, share

if TYPE_CHECKING:
    from tfopt.optimizers.options import StorageKind
    from tfopt.sdca_ops.losses import LossName

__all__ = ["CASES", "lacking"]

#: Yields results for arrays in a place.
Case = Callable[[Place], Iterator[Any]]

#: Shapes: worth seven threads; a table; so many rows of one element that they are sorted first; and
#: with remainders of loops.
_LARGE, _TABLE, _COLUMN, _SMALL = (135_001,), (900, 150), (150_000,), (67, 31)
#: Values with which no rule calls pow or exp, or the call is exact, and a count of steps.
_EXACT = {"lr_power": -0.5, "logbase": 0.0, "global_step": 3}


def _hypers(rule: Rule) -> dict[str, float]:
    return {name: _EXACT.get(name, share(name)) for name in rule.hypers}


def _updated(
    rule: Rule,
    dtype: Any,
    shape: tuple[int, ...],
    place: Place,
    *,
    draw: Callable[..., np.ndarray] = ordinary,
    rows: int = 0,
    **options: Any,
) -> Iterator[np.ndarray]:
    """Yield a variable and its slots after a step, dense or of so many rows."""
    shapes = {name: rule.shape_of(name, shape) for name in rule.operands}
    if rows:
        shapes[rule.grad] = (rows, *shape[1:])
        options["indices"] = placed(below(shape[0], "indices", rows), place)
    operands = []
    for name, each in shapes.items():
        values = draw(f"{name} of {rule.name}", each, dtype)
        values = np.abs(values) if name in rule.slots else values
        operands.append(placed(values, place))
    update = getattr(tfopt.training_ops, f"apply_{rule.name}")
    update(*operands, **{**_hypers(rule), **options})
    yield from operands[:-1]


def _rule(rule: Rule, place: Place) -> Iterator[np.ndarray]:
    """Yield results of dense steps, of rows of several kinds, and with all flags."""
    kinds = ("sequential", "sum") if rule.absent is None else ("sum",)
    for dtype in DTYPES:
        yield from _updated(rule, dtype, _LARGE, place)
        yield from _updated(rule, dtype, _TABLE, place, grad_scale=0.375, var_scale=0.875)
        for kind in kinds if rule.reduction != "tensor" else ():
            yield from _updated(rule, dtype, _TABLE, place, rows=1000, duplicates=kind)
            yield from _updated(rule, dtype, _COLUMN, place, rows=140_000, duplicates=kind)
        for values in product((False, True), repeat=len(rule.flags)):
            flags: dict[str, Any] = dict(zip(rule.flags, values, strict=True))
            yield from _updated(rule, dtype, _SMALL, place, draw=mixed, **flags)
        if "l1" in rule.hypers:
            yield from _updated(rule, dtype, _SMALL, place, l1=0.0)
    yield from _updated(rule, "float16", _SMALL, place, draw=mixed)


def _denormals(flush: bool, place: Place) -> Iterator[np.ndarray]:
    """Yield results of every rule for numbers half of which are denormal, or nearly."""
    set_flush_denormals(flush)
    draw = partial(mixed, denormal=True)
    for rule, dtype in product(RULES, DTYPES):
        yield from _updated(rule, dtype, _SMALL, place, draw=draw)


def _bfloat16(place: Place) -> Iterator[np.ndarray]:
    dtype = importlib.import_module("ml_dtypes").bfloat16
    for rule in RULES:
        yield from _updated(rule, dtype, _TABLE, place)


# ---- clipping and norms


def _tensors() -> Iterator[np.ndarray]:
    for dtype in ("float16", *DTYPES):
        for shape in (_LARGE, _TABLE, _SMALL):
            yield ordinary(f"tensor {shape}", shape, dtype)


def _by_value(place: Place) -> Iterator[np.ndarray]:
    for tensor in _tensors():
        low, high = (tensor.dtype.type(bound) for bound in (-0.5, 1.25))
        yield tfopt.clip_by_value(placed(tensor, place), low, high)


def _by_norm(place: Place) -> Iterator[np.ndarray]:
    for values in _tensors():
        tensor = placed(values, place)
        yield tfopt.clip_by_norm(tensor, 3.0)
        yield tfopt.clip_by_norm(tensor, 3.0, axes=[0])
        yield tfopt.clip_by_norm(tensor, 3.0, axes=[-1])


def _by_average_norm(place: Place) -> Iterator[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for tensor in _tensors():
            yield tfopt.clip_by_average_norm(placed(tensor, place), 1e-4)


def _by_global_norm(place: Place) -> Iterator[Any]:
    for dtype in ("float16", *DTYPES):
        tensors = [each for each in _tensors() if each.dtype == dtype]
        for size in (1.0, np.finfo(dtype).max / 16, np.finfo(dtype).tiny * 4):
            scaled = [placed(each * each.dtype.type(size), place) for each in tensors]
            yield tfopt.global_norm(scaled)
            clipped, norm = tfopt.clip_by_global_norm(scaled, 2.5)
            yield from [*clipped, norm]


# ---- SDCA


def _visits(place: Place) -> Iterator[np.ndarray]:
    """Yield results of two epochs, of losses whose steps are a formula."""
    n, width, features, each = 3000, 12, 400, 6
    at = np.repeat(np.arange(n), each)
    ids = below(features // each, "features", n * each) * each + np.tile(np.arange(each), n)
    losses: tuple[LossName, ...] = ("squared_loss", "hinge_loss", "smooth_hinge_loss")
    for loss, dtype in product(losses, DTYPES):
        dense = placed(ordinary("dense features", (n, width), dtype), place)
        values = placed(ordinary("values", (n * each,), dtype), place)
        labels = ordinary("labels", (n,), dtype)
        labels = labels if loss == "squared_loss" else (labels > 0).astype(dtype)
        weights = [np.zeros(features, dtype), np.zeros(width, dtype)]
        state = np.zeros((n, 4), dtype)
        for adaptive in (False, True):
            result = tfopt.sdca_ops.sdca_optimizer(
                [at], [ids], [values], [dense], np.ones(n), labels, [np.arange(features)],
                weights[:1], weights[1:], state, loss_type=loss, l1=0.25, l2=8.0,
                num_loss_partitions=2, num_inner_iterations=1, adaptive=adaptive, seed=5,
                dtype=dtype,
            )  # fmt: skip
            state = result.out_example_state_data
            deltas = [*result.out_delta_sparse_weights, *result.out_delta_dense_weights]
            weights = [w + delta for w, delta in zip(weights, deltas, strict=True)]
            yield from [state, *weights]


def _shrunk(place: Place) -> Iterator[np.ndarray]:
    for dtype in DTYPES:
        weights = placed(mixed("weights", _TABLE, dtype), place)
        tfopt.sdca_ops.sdca_shrink_l1([weights], l1=0.75, l2=2.0)
        yield weights


def _fingerprints(place: Place) -> Iterator[np.ndarray]:
    text = "".join(map(chr, (below(90, "characters", 400) + 33).tolist()))
    yield tfopt.sdca_ops.sdca_fprint([text[:length] for length in range(0, 400, 7)])


# ---- storage


def _steps(optimizer: Any, dtype: Any, place: Place) -> Iterator[Any]:
    """Yield a variable and slots after three steps of an optimizer without powers of its own."""
    w = placed(ordinary("w", _LARGE, dtype), place)
    for t in range(3):
        optimizer.apply_gradients([(placed(ordinary(f"grad {t}", _LARGE, dtype), place), w)])
        yield w.copy()
    yield from optimizer.get_weights()


def _codes(place: Place) -> Iterator[Any]:
    """Yield blocks of codes, their numbers, and steps of slots that they store."""
    from tfopt import optimizers, storage

    of_any_sign = (storage.SIGNED8, storage.SIGNED4, storage.DYNAMIC8)
    for draw, dtype in product((ordinary, mixed), storage.BLOCKS):
        numbers = placed(draw("numbers", _TABLE, np.float32), place)
        blocks = storage.quantize(numbers if dtype in of_any_sign else np.abs(numbers), dtype)
        yield from [blocks, storage.dequantize(blocks, numbers.shape)]
    kinds: tuple[StorageKind, ...] = ("8bit", "4bit", "dynamic8bit")
    for kind, dtype in product(kinds, ("float32", "float16")):
        yield from _steps(optimizers.SGD(0.5, 0.5, storage=kind), dtype, place)
        yield from _steps(optimizers.RMSprop(0.5, rho=0.5, storage=kind), dtype, place)
        yield from _steps(optimizers.Lion(0.25, storage=kind), dtype, place)


def _stochastic(place: Place) -> Iterator[Any]:
    from tfopt import optimizers

    bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    for dtype in (np.float32, bfloat16):
        options: dict[str, Any] = {"storage": {"momentum": "bfloat16"}, "stochastic_rounding": 7}
        yield from _steps(optimizers.SGD(0.5, 0.5, **options), dtype, place)


#: What is computed for each digest, by name.
CASES: dict[str, Case] = {
    **{rule.name: partial(_rule, rule) for rule in RULES},
    "gradual underflow": partial(_denormals, False),
    "flushed denormals": partial(_denormals, True),
    "bfloat16": _bfloat16,
    "codes": _codes,
    "stochastic rounding": _stochastic,
    "clip_by_value": _by_value,
    "clip_by_norm": _by_norm,
    "clip_by_average_norm": _by_average_norm,
    "clip_by_global_norm": _by_global_norm,
    "sdca_optimizer": _visits,
    "sdca_shrink_l1": _shrunk,
    "sdca_fprint": _fingerprints,
}


def lacking(name: str) -> str | None:
    """Return the requirement of a case that this machine lacks, None if it can be run."""
    if name in ("bfloat16", "stochastic rounding") and find_spec("ml_dtypes") is None:
        return "ml_dtypes is not installed"
    if name == "flushed denormals" and not _can_flush():
        return "this machine cannot flush denormals"
    return None


def _can_flush() -> bool:
    before = get_flush_denormals()
    set_flush_denormals(True)
    can = get_flush_denormals()
    set_flush_denormals(before)
    return can
