"""A tape or trace keeps the values that outside arrays and lists had when they were read.

After a call, all of them are changed in place. What the tape's gradient is, and what the function
returns the next time, does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from laws.law import Draw, Law
from laws.tape_calls import calls, groups, names_in

GROUPS = groups(8)
#: So many calls of a function are in a program.
MOST = 2


def chosen(draw: Draw) -> Iterator[str]:
    """Return some calls of each function of a group that take something from outside."""
    random = np.random.default_rng(draw.seed)
    for name in GROUPS[draw.levels["functions"]]:
        texts = [text for text in calls(name, draw.levels["shape"]) if names_in(text)]
        for k in random.permutation(len(texts))[:MOST]:
            yield texts[k]


PROGRAM = """
import warnings
import numpy as np
import tfopt
from scipy import special
from laws.tape_calls import outside, start

warnings.simplefilter("ignore")
np.seterr(all="ignore")
before = start({shape!r}, {seed})
wrong, done = [], 0


def all_parts(y):
    return [part for part in tfopt.core.nest.flatten(y) if isinstance(part, tfopt.Tensor)]


def squares(y):
    return sum(np.sum(part * np.conj(part)) for part in all_parts(y) if part.dtype.kind in "fc")


def arrays(y):
    return [np.array(tfopt.stop_gradient(part)) for part in all_parts(y)]


def same(a, b):
    if isinstance(b, type) or len(a) != len(b):
        return False
    return all(np.array_equal(p, q, equal_nan=p.dtype.kind in "fc") for p, q in zip(a, b))


def changed(names, o):
    for name in names:
        if isinstance(o[name], list):
            o[name].append(0)
        elif o[name].dtype == bool:
            np.logical_not(o[name], out=o[name])
        else:
            o[name][...] = o[name][..., ::-1] if o[name].ndim else 0.5
            o[name][...] = o[name] * 0 if name == "i" else o[name] + 0.125


def outcome(f):
    try:
        return f()
    except Exception as error:
        return type(error)


calls = {{
{calls}
}}
for text, f in calls.items():
    o = outside({shape!r}, {seed})
    x = tfopt.constant(before)
{body}
    done += 1
assert not wrong, wrong
"""
ON_TAPE = """
    with tfopt.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = outcome(lambda: f(x, **o))
        if isinstance(y, type):
            continue
        loss = squares(y)
    first = outcome(lambda: arrays([tape.gradient(loss, x, None, "zero")]))
    values = arrays(y)
    changed({names}[text], o)
    if not same(values, arrays(y)):
        wrong.append(text + ": the result")
    second = outcome(lambda: arrays([tape.gradient(loss, x, None, "zero")]))
    if not isinstance(first, type) and not same(first, second):
        wrong.append(text + ": the gradient")
"""
TRACED = """
    traced = tfopt.function(lambda x: f(x, **o))
    first = outcome(lambda: arrays(traced(x)))
    if isinstance(first, type):
        continue
    changed({names}[text], o)
    if not same(first, outcome(lambda: arrays(traced(x)))):
        wrong.append(text)
"""
BOTH = """
    traced = tfopt.function(lambda x: f(x, **o))
    slopes = []
    for time in range(2):
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = outcome(lambda: squares(traced(x)))
        if not isinstance(y, type):
            y = outcome(lambda: arrays([tape.gradient(y, x, None, "zero")]))
        slopes.append(y)
        changed({names}[text], o)
    if not isinstance(slopes[0], type) and not same(slopes[0], slopes[1]):
        wrong.append(text)
"""
#: Python code changes them while it is traced: the program keeps what they were.
WHILE_TRACING = """
    def body(x):
        y = f(x, **o)
        changed({names}[text], o)
        return y

    y = outcome(lambda: f(x, **o))
    given_back = any(isinstance(part, np.ndarray) for part in tfopt.core.nest.flatten(y))
    if isinstance(y, type) or given_back or not all_parts(y):
        continue
    wanted = arrays(y)
    found = outcome(lambda: arrays(tfopt.function(body)(x)))
    if not isinstance(found, type) and not same(wanted, found):
        wrong.append(text)
"""
RECORDED = {
    "on a tape": ON_TAPE, "traced": TRACED, "traced, on a tape": BOTH,
    "while tracing": WHILE_TRACING,
}  # fmt: skip


def program(draw: Draw) -> str:
    texts = list(chosen(draw))
    listed = [f"    {t!r}: lambda x, w, m, i, s, v, l: {t}," for t in texts]
    names = {t: names_in(t) for t in texts}
    body = RECORDED[draw.levels["recorded"]].replace("{names}", repr(names))
    return PROGRAM.format(
        shape=draw.levels["shape"], seed=draw.seed, calls="\n".join(listed), body=body
    )


LAW = Law(
    "tape_outside",
    {"functions": [*GROUPS], "shape": ("matrix", "vector", "scalar"), "recorded": [*RECORDED]},
    program,
    alone=True,
    further=3,
)
