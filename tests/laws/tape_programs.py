"""A program of NumPy functions has NumPy's value, and its gradient equals finite differences.

So has its trace, and so do nested tapes, assignments between reads, what is not recorded, and
arrays from outside that are changed before the gradient is asked for. The specification is the same
text, carried out by NumPy on arrays: `Plain` stands for the variable and the tape.
"""

from __future__ import annotations

import numpy as np

from laws.law import Draw, Law
from laws.tape_calls import SHAPES, calls, groups, is_right

GROUPS = groups(10)

PROGRAM = """
import warnings
import numpy as np
import tfopt
from scipy import sparse, special
from tfopt.core.nest import flatten
from laws.tape_calls import number, outside, start

warnings.simplefilter("ignore")
np.seterr(all="ignore")
SHAPE, SEED = {shape!r}, {seed}
X, V = start(SHAPE, SEED), start(SHAPE, SEED + 1)
random = np.random.default_rng(SEED)
R = sparse.random(3, X.size, 0.7, "csr", random_state=SEED)
D, E, C = (random.uniform(0.5, 1.0, X.shape) for _ in range(3))


class Plain:
    \"\"\"What reads, writes and tapes are, of arrays, at a distance from where they began.\"\"\"

    def __init__(self, distance, frozen):
        self.v, self.distance, self.constants, self.count = V, distance, frozen, 0

    def read(self):
        return self.v + self.distance * E

    def assign(self, value):
        self.v = np.array(value)

    def frozen(self, f):
        self.count += 1
        if self.count > len(self.constants):
            self.constants.append(number(f()))
        return self.constants[self.count - 1]

    def slope(self, a, w):
        return 3 * a * a * w

    def rows(self, a):
        first = R.toarray() @ np.ravel(a)
        return first, R.toarray().T @ first

    def wrapped(self, f, a):
        return f(a)


class Recorded:
    \"\"\"The same of tensors.\"\"\"

    def __init__(self, tape):
        self.v, self.tape = tfopt.Variable(V.copy()), tape

    def read(self):
        return self.v + 0.0

    def assign(self, value):
        self.v.assign(value)

    def frozen(self, f):
        if self.tape is None:
            return tfopt.stop_gradient(number(f()))
        with self.tape.stop_recording():
            return number(f())

    def slope(self, a, w):
        with tfopt.GradientTape(persistent={persistent}) as inner:
            inner.watch(a)
            y = np.sum(a ** 3 * w)
        return inner.gradient(y, a)

    def rows(self, a):
        rows = tfopt.SparseRows(R)
        first = rows.dot(np.ravel(a))
        return first, np.add(rows.gradient(first), 0.0)

    def wrapped(self, f, a):
        return {wrapper}(f)(a)


def mixed(a, y):
    return 0.2 + 0.5 * a + 0.15 * np.tanh(number(y))


def f(a, env, o):
    w, m, i, s, v, l = (o[name] for name in "wmisvl")
{body}
    return a


def plain(distance, frozen):
    return np.sum(C * f(X + distance * D, Plain(distance, frozen), outside(SHAPE, SEED)))


def changed(o):
    for name in "wisv":
        o[name][...] = 0
    np.logical_not(o["m"], out=o["m"])
    o["l"].append(0)


def recorded(at, order, persistent={persistent}, traced={traced}):
    \"\"\"The value, the slope along the directions, and that of the slope.\"\"\"
    o, x = outside(SHAPE, SEED), tfopt.constant(at)
    with tfopt.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tfopt.GradientTape(persistent=persistent) as tape:
            tape.watch(x)
            env = Recorded(None if traced else tape)
            body = tfopt.function(lambda x: f(x, env, o)) if traced else lambda x: f(x, env, o)
            y = np.sum(C * body(x))
        if {changed}:
            changed(o)
        gx, gv = tape.gradient(y, [x, env.v], None, "zero")
        slope = np.sum(gx * D) + np.sum(gv * E)
    found = [tfopt.stop_gradient(y), tfopt.stop_gradient(slope)]
    if order > 1:
        found.append(np.sum(outer.gradient(slope, x, None, "zero") * D))
    if traced:
        env.assign(V)
        np.testing.assert_allclose(np.sum(C * body(tfopt.constant(at))).numpy(), y.numpy(), 1e-12)
    return [float(np.real(part.numpy())) for part in found]


def main():
    frozen = []
    try:
        value = plain(0.0, frozen)
    except Exception as error:
        try:
            recorded(X, 1)
        except type(error):
            return
        raise AssertionError(f"NumPy raises {{error!r}}") from None
    step = 1e-5
    ends = [plain(s * step, list(frozen)) for s in (1, -1, 3, -3)]
    slopes = (ends[0] - ends[1]) / (2 * step), (ends[2] - ends[3]) / (6 * step)
    try:
        found = recorded(X, {order})
    except (LookupError, NotImplementedError, tfopt.errors.InvalidTypeError):
        return  # no rule for such arguments; or a tensor would become an array
    except TypeError as error:
        assert "after an assignment in a traced function" in str(error), error
        return
    np.testing.assert_allclose(found[0], value, 1e-9, 1e-9, err_msg="the value")
    if abs(slopes[0] - slopes[1]) < 1e-6:  # it is smooth there
        np.testing.assert_allclose(found[1], slopes[0], 1e-5, 1e-5, err_msg="the slope")
    if {order} > 1 and not frozen:
        near = [recorded(X + s * step * D, 1)[1] for s in (1, -1, 3, -3)]
        seconds = (near[0] - near[1]) / (2 * step), (near[2] - near[3]) / (6 * step)
        if abs(seconds[0] - seconds[1]) < 1e-6:
            np.testing.assert_allclose(found[2], seconds[0], 1e-4, 1e-4, err_msg="the second")


before = tfopt.autodiff.set_conversion("error")
try:
    main()
finally:
    tfopt.autodiff.set_conversion(before)
"""
STATEMENTS = {
    "read": "a = mixed(a, np.sin(a * env.read()))",
    "assign": "env.assign(w + 0.0)",
    "view": "a = a[..., ::-1] if a.ndim else a[...]",
    "product": "a = mixed(a * w, a)",
    "rows": "a = mixed(a, env.rows(a))",
    "slope": "a = mixed(a, env.slope(a, w))",
    "wrapped": "a = mixed(a, env.wrapped(lambda b: np.sin(b * env.read()) * np.exp(b), a))",
}
WRAPPERS = {
    "recompute_grad": "tfopt.recompute_grad",
    "function": "tfopt.function",
    "function of recompute_grad": "(lambda f: tfopt.function(tfopt.recompute_grad(f)))",
    "recompute_grad of function": "(lambda f: tfopt.recompute_grad(tfopt.function(f)))",
}


def program(draw: Draw) -> str:
    levels, random = draw.levels, np.random.default_rng(draw.seed)
    shape, names = levels["shape"], GROUPS[levels["functions"]]

    def call() -> str:
        for _ in range(40):
            texts = calls(names[random.integers(len(names))], shape)
            text = texts[random.integers(len(texts))] if texts else ""
            if text and is_right(text, shape):
                return text
        return "np.sin(x)"

    lines = []
    for event in ("call", *draw.events):
        if event == "call":
            lines.append(f"a = mixed(a, (lambda x: {call()})(a))")
        elif event == "unrecorded":
            lines.append(f"a = mixed(a, env.frozen(lambda: (lambda x: {call()})(a)))")
        elif event == "assign" and STATEMENTS["wrapped"] in lines:
            continue  # what is computed again would be another function
        else:
            lines.append(STATEMENTS[event])
    return PROGRAM.format(
        shape=shape,
        seed=draw.seed % 10_000,
        persistent=levels["tape"] == "persistent",
        traced=levels["recorded"] == "traced",
        changed=levels["outside"] == "changed",
        wrapper=WRAPPERS[levels["wrapper"]],
        order=int(levels["order"]),
        body="\n".join(f"    {line}" for line in lines),
    )


LAW = Law(
    "tape_programs",
    {
        "functions": [*GROUPS],
        "shape": [*SHAPES],
        "recorded": ("eager", "traced"),
        "order": ("1", "2"),
        "tape": ("once", "persistent"),
        "outside": ("kept", "changed"),
        "wrapper": [*WRAPPERS],
    },
    program,
    events=("call", "call", "call", "unrecorded", *STATEMENTS),
    length=8,
    alone=True,
    further=40,
)
