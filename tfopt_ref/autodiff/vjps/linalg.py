"""Rules of products and of linear algebra."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.ops import Op, define
from tfopt_ref.autodiff.tensor import TABLE
from tfopt_ref.autodiff.vjps.derived import array
from tfopt_ref.autodiff.vjps.elementwise import conj

__all__ = ["transposed"]


def transposed(a: Any) -> Any:
    """Return the transposed conjugate."""
    return conj(np.swapaxes(a, -1, -2))


# ---- products


def _as_matrices(g: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return the operands of a product and its gradient as matrices, where some are vectors."""
    if b.ndim == 1:
        g, b = g[..., None], b[:, None]
    if a.ndim == 1:
        g, a = g[..., None, :], a[None, :]
    return g, a, b


def _to_first(g: Any, y: Any, a: Any, b: Any) -> Any:
    g, _, two = _as_matrices(g, a, b)
    product = g @ transposed(two)
    return product[..., 0, :] if a.ndim == 1 else product


def _to_second(g: Any, y: Any, a: Any, b: Any) -> Any:
    g, one, _ = _as_matrices(g, a, b)
    product = transposed(one) @ g
    return product[..., 0] if b.ndim == 1 else product


define(np.matmul, _to_first, _to_second)


def _axes(a: Any, b: Any, axes: Any) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the axes over which tensordot sums, and the others."""
    if isinstance(axes, int):
        axes = range(a.ndim - axes, a.ndim), range(axes)
    summed_a, summed_b = (
        list(normalize_axis_tuple(tuple(np.atleast_1d(given)), x.ndim))
        for given, x in zip(axes, (a, b), strict=True)
    )
    free_a, free_b = (
        [i for i in range(x.ndim) if i not in summed]
        for x, summed in ((a, summed_a), (b, summed_b))
    )
    return summed_a, summed_b, free_a, free_b


def _tensordot_a(g: Any, y: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    summed_a, summed_b, free_a, free_b = _axes(a, b, axes)
    product = np.tensordot(g, conj(b), (range(len(free_a), g.ndim), free_b))
    order = [*free_a, *(summed_a[i] for i in np.argsort(summed_b))]
    return np.transpose(product, np.argsort(order))


def _tensordot_b(g: Any, y: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    summed_a, summed_b, free_a, free_b = _axes(a, b, axes)
    product = np.tensordot(conj(a), g, (free_a, range(len(free_a))))
    order = [*(summed_b[i] for i in np.argsort(summed_a)), *free_b]
    return np.transpose(product, np.argsort(order))


def _last_axes(a: Any, b: Any) -> Any:
    return [a.ndim - 1], [max(b.ndim - 2, 0)]


define(np.tensordot, _tensordot_a, _tensordot_b)
_dot = Op(
    np.dot,
    lambda g, y, a, b: _tensordot_a(g, y, a, b, _last_axes(a, b)),
    lambda g, y, a, b: _tensordot_b(g, y, a, b, _last_axes(a, b)),
)
_inner = Op(
    np.inner,
    lambda g, y, a, b: _tensordot_a(g, y, a, b, ([-1], [-1])),
    lambda g, y, a, b: _tensordot_b(g, y, a, b, ([-1], [-1])),
)
for op in (_dot, _inner):
    TABLE[op.function] = lambda a, b, op=op: op(a, b) if np.ndim(a) and np.ndim(b) else a * b
TABLE[np.outer] = lambda a, b: np.ravel(a)[:, None] * np.ravel(b)

# ---- einsum


def _einsum(subscripts: str, operands: list[np.ndarray], kwargs: dict[str, Any]) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


def _einsum_grads(
    g: Any, y: Any, subscripts: str, operands: list[Any], kwargs: dict[str, Any]
) -> list[Any]:
    if kwargs.keys() - {"optimize"}:
        raise LookupError(f"no gradient of einsum with {', '.join(kwargs)}")
    inputs, output = _spelled(subscripts, operands)
    grads = []
    for i, word in enumerate(inputs):
        others = [k for k in range(len(inputs)) if k != i]
        words = [output, *(inputs[k] for k in others)]
        found = "".join(c for c in dict.fromkeys(word) if any(c in other for other in words))
        part = np.einsum(f"{','.join(words)}->{found}", g, *(conj(operands[k]) for k in others))
        sizes = dict(zip(word, np.shape(operands[i]), strict=True))
        lengths = [max(sizes[c], n) for c, n in zip(found, part.shape, strict=True)]
        grads.append(_spread(np.broadcast_to(part, lengths), found, word, sizes))
    return grads


def _spelled(subscripts: str, operands: list[Any]) -> tuple[list[str], str]:
    """Return the letters of the inputs and of the output, with letters for dots."""
    left, arrow, output = subscripts.replace(" ", "").partition("->")
    spare = [c for c in string.ascii_letters if c not in subscripts]
    inputs, longest = [], ""
    for word, x in zip(left.split(","), operands, strict=True):
        dots = "".join(spare[: np.ndim(x) - len(word.replace("...", ""))][::-1])
        longest = max(longest, dots, key=len)
        inputs.append(word.replace("...", dots))
    if arrow:
        return inputs, output.replace("...", longest)
    letters = "".join(inputs)
    once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in longest)
    return inputs, longest + "".join(once)


def _spread(part: Any, found: str, word: str, sizes: dict[str, int]) -> Any:
    """Return a gradient with all letters of a word: ones not found repeat, double ones are zero
    but on the diagonal."""
    missing = [c for c in dict.fromkeys(word) if c not in found]
    part = np.broadcast_to(part, (*(sizes[c] for c in missing), *part.shape))
    letters = "".join(missing) + found
    eyes, new = [], ""
    for c in word:
        if c not in new:
            new += c
        else:
            spare = next(s for s in string.ascii_letters if s not in letters + new + word)
            eyes.append((c + spare, np.eye(sizes[c])))
            new += spare
    words = ",".join([letters, *(pair for pair, _ in eyes)])
    return np.einsum(f"{words}->{new}", part, *(eye for _, eye in eyes))


_einsummed = Op(_einsum, None, _einsum_grads, name="einsum")


def _einsum_of(*operands: Any, **kwargs: Any) -> Any:
    if isinstance(operands[0], str):
        return _einsummed(operands[0], [array(x) for x in operands[1:]], kwargs)
    words = ["".join("..." if k is ... else string.ascii_letters[k] for k in listed)
             for listed in (*operands[1::2], *operands[len(operands) // 2 * 2 :])]  # fmt: skip
    arrays = operands[: len(operands) // 2 * 2 : 2]
    subscripts = ",".join(words[: len(arrays)])
    if len(words) > len(arrays):
        subscripts += f"->{words[-1]}"
    return _einsummed(subscripts, [array(x) for x in arrays], kwargs)


TABLE[np.einsum] = _einsum_of

# ---- matrices

define(np.linalg.inv, lambda g, y, a: -transposed(y) @ g @ transposed(y))
define(np.linalg.det, lambda g, y, a: (g * conj(y))[..., None, None] * transposed(np.linalg.inv(a)))


def _slogdet(g: Any, y: Any, a: Any) -> Any:
    """Return the logarithm's gradient, and that of a complex sign's angle."""
    slope = g.logabsdet
    if np.iscomplexobj(a):
        slope = slope + 1j * np.imag(g.sign * conj(y.sign))
    return slope[..., None, None] * transposed(np.linalg.inv(a))


define(np.linalg.slogdet, _slogdet)


def _solve_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.linalg.solve(transposed(a), g)


def _solve_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    s = _solve_b(g, y, a, b)
    if len(b.shape) == 1:
        return -s[..., :, None] * conj(y)[..., None, :]
    return -s @ transposed(y)


define(np.linalg.solve, _solve_a, _solve_b)


def _cholesky(g: Any, y: Any, a: Any, /, *, upper: bool = False) -> Any:
    lower, g = (transposed(y), transposed(g)) if upper else (y, g)
    n = a.shape[-1]
    half = np.tril(np.ones((n, n)), -1) + 0.5 * np.eye(n)
    inverse = np.linalg.inv(lower)
    middle = transposed(inverse) @ ((transposed(lower) @ g) * half) @ inverse
    return (middle + transposed(middle)) / 2


define(np.linalg.cholesky, _cholesky)
