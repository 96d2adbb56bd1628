"""The rule of `np.einsum`, whose gradients are sums of products, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.backward import call, conj
from tfopt.autodiff.dispatch import without_rule
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements
from tfopt.autodiff.vjps.indexing import ADD_AT, SLOT
from tfopt.core.engine import Op, apply

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _einsum(*arrays: Any, inputs: tuple[str, ...], output: str, optimize: Any = False) -> Any:
    return np.einsum(f"{','.join(inputs)}->{output}", *arrays, optimize=optimize)


def _einsum_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    return [_einsum_one(g, ins, kw, k) if wanted else None for k, wanted in enumerate(need)]


def _einsum_one(g: Any, ins: Any, kw: Any, place: int) -> Any:
    """Contract the gradient with the other operands; put axes that were summed alone back."""
    inputs, output = kw["inputs"], kw["output"]
    own, target = inputs[place], ins[place]
    sizes = dict(zip(own, target.shape, strict=True))
    others = [k for k in range(len(ins)) if k != place]
    known = set(output).union(*(inputs[k] for k in others))
    distinct = "".join(dict.fromkeys(own))
    reached = "".join(letter for letter in distinct if letter in known)
    subscripts = ",".join([output, *(inputs[k] for k in others)])
    factors = [g, *(conj(ins[k]) for k in others)]
    optimize = kw.get("optimize") or len(factors) > 2
    made = np.einsum(f"{subscripts}->{reached}", *factors, optimize=optimize)
    lengths = dict(zip(reached, made.shape, strict=True))
    if lengths != sizes:  # an operand's 1 is repeated where others have more; or it is alone
        made = np.reshape(made, [lengths.get(c, 1) for c in distinct])
        alone = tuple(k for k, c in enumerate(distinct) if sizes[c] == 1 != made.shape[k])
        made = np.sum(made, axis=alone, keepdims=True) if alone else made
        made = np.broadcast_to(made, [sizes[c] for c in distinct])
    if len(own) != len(distinct):  # a diagonal: its elements go back where they were
        on = np.einsum(
            f"{','.join(distinct)}->{distinct}", *(np.ones(sizes[c], bool) for c in distinct)
        )
        grids = np.nonzero(on)
        key = tuple(grids[distinct.index(c)] for c in own)
        made = _put(made.reshape(-1), key, target.shape)
    return made


def _put(values: Any, key: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    return call(ADD_AT, (values, *key), {"key": (SLOT,) * len(key), "shape": shape})


EINSUM = Op("einsum", _einsum, views=True)
EINSUM.define_jointly(_einsum_rule, "*")


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **others: Any) -> Any:
    """Sum products as subscripts say."""
    if others:
        others["optimize"] = optimize
        return without_rule("einsum", np.einsum, operands, others)
    try:
        subscripts, given = _as_string(operands)
        arrays = [operand(a) for a in given]
        inputs, output = _explicit(subscripts.replace(" ", ""), [np.ndim(a) for a in arrays])
    except (IndexError, TypeError, ValueError):  # NumPy says better what is wrong
        return without_rule("einsum", np.einsum, operands, {"optimize": optimize})
    kw = {"inputs": inputs, "output": output}
    return apply(EINSUM, tuple(arrays), {**kw, "optimize": optimize} if optimize else kw)


def _as_string(operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """Return subscripts and arrays, of arrays and lists of numbers in turn, too."""
    if isinstance(operands[0], str):
        return operands[0], operands[1:]
    words = [
        "".join("..." if k is Ellipsis else _LETTERS[int(k)] for k in listed)
        for listed in operands[1::2]
    ]
    arrays = operands[: len(operands) // 2 * 2 : 2]
    if len(operands) % 2:  # the last one is the output
        last = "".join("..." if k is Ellipsis else _LETTERS[int(k)] for k in operands[-1])
        return f"{','.join(words)}->{last}", arrays
    return ",".join(words), arrays


def _explicit(subscripts: str, ndims: list[int]) -> tuple[tuple[str, ...], str]:
    """Return subscripts with letters in the place of an ellipsis, and an output."""
    left, arrow, output = subscripts.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise ValueError("einsum: as many subscripts as operands are needed")
    free = [c for c in _LETTERS if c not in subscripts]
    lengths = [n - len(p.replace("...", "")) if "..." in p else 0
               for p, n in zip(parts, ndims, strict=True)]  # fmt: skip
    hidden = "".join(free[: max(lengths)])
    inputs = tuple(p.replace("...", hidden[len(hidden) - n :])
                   for p, n in zip(parts, lengths, strict=True))  # fmt: skip
    if not arrow:
        joined = left.replace(",", "").replace("...", "")
        output = hidden + "".join(c for c in sorted(set(joined)) if joined.count(c) == 1)
    return inputs, output.replace("...", hidden)
