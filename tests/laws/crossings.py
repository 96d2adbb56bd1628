"""A torch tensor acts like the array of its elements, or is refused with the true reason."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from textwrap import indent

import ml_dtypes  # noqa: F401  # gives NumPy the dtype bfloat16
import numpy as np
import torch

from laws.law import Draw, Law

__all__ = ["LAW"]

#: Every dtype of torch by its name, those first of which there are arrays.
DTYPES = tuple(
    sorted(
        {str(v).removeprefix("torch.") for v in vars(torch).values() if isinstance(v, torch.dtype)},
        key=lambda name: (name not in ("float32", "float64", "bfloat16"), name),
    )
)

#: What a tensor may be besides its elements, how it becomes that, and what a refusal must name.
FLAGS = {
    "plain": ("t", ""),
    "a parameter": ("torch.nn.Parameter(t, requires_grad=False)", ""),
    "requires a gradient": ("t.requires_grad_()", "detach()"),
    "computed with a gradient": ("t.clone().requires_grad_() * 1", "detach()"),
    "conjugated": ("t.conj()", "resolve_conj()"),
    "negated": ("torch._neg_view(t)", "resolve_neg()"),
    "coo": ("t.to_sparse()", "to_dense()"),
    "csr": ("t.to_sparse_csr()", "to_dense()"),
    "without values": ("t.to('meta')", "meta"),
}

#: Views of a tensor and of an array of shape (4, 3).
LAYOUTS = {
    "in order": "{}",
    "transposed": "{}.T",
    "every other row": "{}[::2]",
    "a column": "{}[:, 1]",
    "one number": "{}[1, 2, ...]",
    "no rows": "{}[:0]",
    "one row": "{}[2:3]",
}

#: What it is used for: x is the tensor or the array, v an array of its shape and dtype.
ROLES = {
    "gradient of a rule": "training_ops.apply_gradient_descent(v, x, alpha=0.5); return v",
    "gradient of a list": "training_ops.apply_gradient_descent([v], [x], alpha=0.5); return v",
    "variable of a rule": "training_ops.apply_gradient_descent(x, v, alpha=0.5); return x",
    "slot of a rule": (
        "training_ops.apply_momentum(v, x, v.copy(), lr=0.5, momentum=0.5); return v, x"
    ),
    "gradient of rows": (
        "r = tfopt.IndexedSlices(x, np.arange(len(v)))\nSGD(0.5).step(v, r); return v"
    ),
    "gradient of a step": "SGD(0.5).step({'w': v}, {'w': x}); return v",
    "gradient of a pair": "SGD(0.5).apply_gradients([(x, v)]); return v",
    "gradient of a loss": "SGD(0.5).minimize(lambda: (0.0, [x]), [v]); return v",
    "gradient, accumulated": "GradientAccumulation(SGD(0.5), 1).step([v], [x]); return v",
    "gradient, clipped": "SGD(0.5, global_clipnorm=1.0).step([v], [x]); return v",
    "gradient, scaled": (
        "LossScaleOptimizer(SGD(0.5)).minimize(lambda: (0.0, [x]), [v]); return v"
    ),
    "gradient, mapped": (
        "SGD(0.5, gradient_transformers=[lambda p: [(g * 2, w) for g, w in p]])"
        ".step([v], [x]); return v"
    ),
    "variable of a step": "SGD(0.5).step({'w': x}, {'w': v}); return x",
    "variable of a pair": "SGD(0.5, use_locking=True).apply_gradients([(v, x)]); return x",
    "variable with slots": (
        "o = SGD(0.5, momentum=0.5)\nfor _ in range(3):\n    o.step([x], [v])\n"
        "return x, o.get_slot(x, 'momentum').numpy()"
    ),
    "Variable": "return tfopt.Variable(x).numpy()",
    "clip_by_value": "return tfopt.clip_by_value(x, -1.0, 1.0)",
    "clip_by_norm": "return tfopt.clip_by_norm(x, 1.0)",
    "clip_by_average_norm": "return tfopt.clip_by_average_norm(x, 1.0)",
    "clip_by_global_norm": "return tfopt.clip_by_global_norm([x], 1.0)[0][0]",
    "global_norm": "return tfopt.global_norm([x])",
}

PROGRAM = """
import ml_dtypes, numpy as np, tfopt, torch, warnings
from tfopt import training_ops
from tfopt.optimizers import GradientAccumulation, LossScaleOptimizer, SGD

def use(x, v):
{role}

def outcome(x, v):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            used = use(x, v)
            return [*used] if type(used) is tuple else [used]
        except tfopt.InvalidArgumentError as error:
            return error

def bits(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().view(torch.uint8) if value.is_contiguous() and value.ndim else value
        value = value.contiguous()
        if value.dtype is torch.bfloat16:
            value = value.view(torch.int16)
        return value.numpy().tobytes()
    return np.ascontiguousarray(value).tobytes()

t = torch.zeros(4, 3, dtype=torch.{dtype})
elements = {elements}
if {known}:
    a = np.array(elements).astype({numpy!r})
    t = torch.tensor(a.tolist(), dtype=torch.{dtype})
    v = np.ones(np.shape({array_view}), {numpy!r})
    expected = outcome({array_view}, v.copy())
else:
    v = np.ones(np.shape({zeros_view}), "f")
t = {tensor_view}
x = {flag}
got = outcome(x, v.copy())
refusals = {refusals}
if isinstance(got, Exception):
    assert isinstance(got, TypeError) or isinstance(expected, Exception), got
    assert "GPU" not in str(got), got
    as_the_array = {known} and isinstance(expected, Exception) and type(got) is type(expected)
    assert as_the_array or any(each in str(got) for each in refusals), (got, refusals)
else:
    assert {known} and not isinstance(expected, Exception), (got, "was not refused")
    assert {may_pass}, (got, "was not refused")
    for ours, theirs in zip(got, expected, strict=True):
        ours = np.asarray(ours) if isinstance(ours, tfopt.IndexedSlices) else ours
        assert bits(ours) == bits(theirs), (ours, theirs)
"""


def _numpy_name(dtype: str) -> str | None:
    """Return the name of NumPy's dtype with the elements of torch's, if there is one."""
    return dtype if dtype == "bfloat16" or hasattr(np, dtype) else None


def program(draw: Draw) -> str:
    """Return a program that uses a tensor, and an array with the same elements."""
    dtype, layout = draw.levels["dtype"], LAYOUTS[draw.levels["layout"]]
    flag, refusal = FLAGS[draw.levels["flag"]]
    random = np.random.default_rng(draw.seed)
    known = _numpy_name(dtype)
    named = [refusal, "" if known else f"torch.{dtype}"]
    if draw.levels["flag"] == "coo":
        named.append("sparse dimensions")
    return PROGRAM.format(
        role=indent(ROLES[draw.levels["role"]], "    "),
        dtype=dtype,
        numpy=known,
        known=known is not None,
        elements=random.integers(0, 4, (4, 3)).tolist(),
        array_view=layout.format("a"),
        zeros_view=layout.format("np.zeros((4, 3))"),
        tensor_view=layout.format("t"),
        flag=flag,
        refusals=[each for each in named if each],
        may_pass=not refusal or draw.levels["flag"] == "coo",
    )


@cache
def _exists(dtype: str, layout: str, flag: str) -> bool:
    """Whether torch has such a tensor."""
    try:
        t = torch.zeros(4, 3, dtype=getattr(torch, dtype))
        t = eval(LAYOUTS[layout].format("t"), {"t": t})
        x = eval(FLAGS[flag][0], {"t": t, "torch": torch})
    except Exception:  # of any class
        return False
    return flag != "conjugated" or x.is_conj()


def possible(levels: Mapping[str, str]) -> bool:
    """Whether torch has such a tensor."""
    if levels.get("layout") == "one number" and levels.get("role") == "gradient of rows":
        return False
    dtypes = [levels["dtype"]] if "dtype" in levels else ["float32", "complex64"]
    layouts = [levels["layout"]] if "layout" in levels else ["in order"]
    flags = [levels["flag"]] if "flag" in levels else ["plain"]
    return any(_exists(d, e, f) for d in dtypes for e in layouts for f in flags)


LAW = Law(
    name="crossings",
    factors={
        "dtype": DTYPES,
        "flag": (*FLAGS,),
        "layout": (*LAYOUTS,),
        "role": (*ROLES,),
    },
    program=program,
    possible=possible,
    further=300,
)
