"""Behaviours of tapes and custom gradients as small programs, B1 to B52.

Each takes a facade and returns numbers. They are numbered as in the list that they come from.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from golden.autodiff.facades import caught, plain

__all__ = ["BEHAVIOURS", "behaviour", "gradient", "gradient_in", "scaled", "twice"]

BEHAVIOURS: dict[str, Callable[[Any], Any]] = {}


def behaviour(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    BEHAVIOURS[function.__name__.upper()] = function
    return function


def gradient(t: Any, function: Callable[..., Any], *values: Any, of: Any = None, **kw: Any) -> Any:
    """Return the gradients of a function by its arguments, which are watched, or by others."""
    inputs = [t.constant(v) if isinstance(v, (float, list)) else v for v in values]
    with t.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    found = tape.gradient(y, inputs if of is None else of, **kw)
    return plain(found[0] if of is None and len(inputs) == 1 else found)


def scaled(t: Any, factor: float) -> Any:
    """Return the identity whose gradient is multiplied by a factor."""
    return t.custom_gradient(lambda x: (x * 1.0, lambda d: d * factor))


# ---- basics


@behaviour
def b1(t: Any) -> Any:
    f = t.custom_gradient(lambda x: (x * x, lambda d: d * 100.0))
    return plain(f(t.constant(3.0))), gradient(t, f, 3.0)


@behaviour
def b2(t: Any) -> Any:
    @t.custom_gradient()
    def square(x):
        """Square."""
        return x * x, lambda d: d * 100.0

    return gradient(t, square, 3.0), square.__name__, square.__doc__, square.__wrapped__.__name__


@behaviour
def b3(t: Any) -> Any:
    ways = (lambda d: d * 5.0, lambda d: [d * 5.0], lambda d: (d * 5.0,))
    return [gradient(t, t.custom_gradient(lambda x, g=g: (x * x, g)), 3.0) for g in ways]


@behaviour
def b4(t: Any) -> Any:
    return gradient(t, t.custom_gradient(lambda x, y: (x * y, lambda d: (d, d * 2.0))), 3.0, 4.0)


@behaviour
def b5(t: Any) -> Any:
    f = t.custom_gradient(lambda x, y: (x * y, lambda d: {"b": d * 2.0, "a": [d]}))
    return gradient(t, f, 3.0, 4.0)


def _of_dictionary(t: Any, returned: Callable[[Any], Any]) -> Any:
    f = t.custom_gradient(lambda inputs: (inputs["p"] * inputs["a"], returned))
    return gradient(t, lambda x, y: f({"p": x, "a": y}), 3.0, 4.0)


@behaviour
def b6(t: Any) -> Any:
    return _of_dictionary(t, lambda d: (d * 10.0, d * 20.0))


@behaviour
def b7(t: Any) -> Any:
    return _of_dictionary(t, lambda d: {"p": d * 10.0, "a": d * 20.0})


@behaviour
def b8(t: Any) -> Any:
    seen = []

    @t.custom_gradient
    def f(x):
        def grad_fn(*upstream):
            seen.extend(plain(list(upstream)))
            return upstream[0]

        return {"z": x * 1.0, "a": [x * 2.0, x * 3.0]}, grad_fn

    keys = []

    def target(x):
        y = f(x)
        keys.extend(y)
        return y["z"] * 100.0 + y["a"][0] * 10.0 + y["a"][1]

    return gradient(t, target, 3.0), seen, keys


Pair = namedtuple("Pair", "first second")


@behaviour
def b9(t: Any) -> Any:
    x = t.constant(3.0)
    makers = (Pair, lambda a, b: (a, b), lambda a, b: [a, b])
    results = [
        t.custom_gradient(lambda x, m=m: (m(x * 1.0, x * 2.0), lambda a, b: a))(x) for m in makers
    ]
    return [[type(result).__name__, plain(list(result))] for result in results]


@behaviour
def b10(t: Any) -> Any:
    seen = []

    @t.custom_gradient
    def f(x):
        def grad_fn(a, b):
            seen.append(plain(b))
            return a

        return (x * 1.0, t.np.stack([x, x])), grad_fn

    return gradient(t, lambda x: f(x)[0], 3.0), seen


@behaviour
def b11(t: Any) -> Any:
    calls = []

    @t.custom_gradient
    def f(x):
        return x * 1.0, lambda d: calls.append(1)

    def target(x):
        f(x)
        return x * 2.0

    return gradient(t, target, 3.0), len(calls)


@behaviour
def b12(t: Any) -> Any:
    seen = []

    @t.custom_gradient
    def f(x):
        def grad_fn(d, whole, flag):
            seen.append([plain(d), plain(whole), plain(flag)])
            return d

        return (x * 1.0, t.cast(x, "int32"), x > 1.0), grad_fn

    return gradient(t, lambda x: f(x)[0], 3.0), seen


@behaviour
def b13(t: Any) -> Any:
    f = t.custom_gradient(lambda x, n: (x * 1.0, lambda d: (d * 5.0, None)))
    g = t.custom_gradient(lambda n: (n * 2, lambda d: d * 7))
    n, x = t.constant(4), t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = f(x, n), g(n)
    return plain(tape.gradient(y, [x, n])), plain(tape.gradient(z, n))


@behaviour
def b14(t: Any) -> Any:
    f = t.custom_gradient(lambda x: (x * 1.0, lambda d: None))
    zero = gradient(t, f, 3.0, unconnected_gradients="zero")
    return gradient(t, f, 3.0), zero, gradient(t, lambda x: f(x) + x * 2.0, 3.0)


@behaviour
def b15(t: Any) -> Any:
    one = t.custom_gradient(lambda x: (x * 1.0, lambda d: (d, d)))
    two = t.custom_gradient(lambda x, y: (x * y, lambda d: d))
    none = t.custom_gradient(lambda x: (x * 1.0, lambda d: []))
    start = "custom_gradient function expected to return "
    return [
        caught(lambda: gradient(t, one, 3.0), start + "1 gradients, but returned 2 instead."),
        caught(lambda: gradient(t, two, 3.0, 4.0), start + "2 gradients, but returned 1 instead."),
        caught(lambda: gradient(t, none, 3.0), start + "1 gradients, but returned 0 instead."),
    ]


@behaviour
def b16(t: Any) -> Any:
    f = t.custom_gradient(lambda x, y: (x * y, lambda d: (d * 10.0, d * 100.0)))
    return gradient(t, lambda x: f(x, x), 3.0)


@behaviour
def b17(t: Any) -> Any:
    f = scaled(t, 3.0)
    return gradient(t, lambda x: f(f(x)), 3.0), gradient(t, lambda x: f(x) + x, 3.0)


@behaviour
def b18(t: Any) -> Any:
    x = t.constant(3.0)
    return t.custom_gradient(lambda x: (x, lambda d: d))(x) is x


@behaviour
def b19(t: Any) -> Any:
    k = t.constant(5.0)

    def target(x, k):
        return t.custom_gradient(lambda x: (x * k, lambda d: d * 100.0))(x)

    return gradient(t, target, 3.0, k)


@behaviour
def b20(t: Any) -> Any:
    leaked = []

    @t.custom_gradient
    def f(x):
        leaked.append(x * 7.0)
        return leaked[0] * 2.0, lambda d: d * 100.0

    x = t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    return plain(tape.gradient(leaked[0], x)), plain(tape.gradient(y, leaked[0]))


def _methods(t: Any) -> Any:
    class Model:
        factor = 2.0

        @t.custom_gradient
        def f(self, x):
            return x * self.factor, lambda d: d * self.factor * 10.0

        @staticmethod
        @t.custom_gradient
        def s(x):
            return x * 3.0, lambda d: d * 30.0

        @classmethod
        @t.custom_gradient
        def c(cls, x):
            return x * cls.factor, lambda d: d * 40.0

    return Model


@behaviour
def b21(t: Any) -> Any:
    Model = _methods(t)
    Other = type("Other", (Model,), {"factor": 5.0})
    found = [gradient(t, m, 3.0) for m in (Model().f, Other().f, Model.s, Other().s, Model.c)]
    return found, caught(lambda: Model.f(Model(), t.constant(3.0)))[0]


@behaviour
def b22(t: Any) -> Any:
    right = t.custom_gradient(lambda x, y: (x * y, lambda d: (d * 5.0, None)))
    wrong = t.custom_gradient(lambda x, y: (x * y, lambda d: d))
    return gradient(t, lambda x: right(x, 2.0), 3.0), caught(
        lambda: gradient(t, lambda x: wrong(x, 2.0), 3.0), "expected to return 2"
    )


@behaviour
def b23(t: Any) -> Any:
    @t.custom_gradient
    def f(x, s=4.0):
        return x * s, lambda d: d * s

    return gradient(t, f, 3.0), gradient(t, lambda x: f(x, s=6.0), 3.0)


@behaviour
def b24(t: Any) -> Any:
    two = t.custom_gradient(lambda x, y: (x * y, lambda d: (d * 10.0, d * 20.0)))
    one = t.custom_gradient(lambda x, y: (x * y, lambda d: d * 10.0))
    return (
        _result(lambda: gradient(t, lambda x, y: two(x, y=y), 3.0, 4.0)),
        _result(lambda: gradient(t, lambda x, y: one(x, y=y), 3.0, 4.0)),
    )


def _result(function: Callable[[], Any]) -> Any:
    """Return a result, or the error in its place."""
    try:
        return function()
    except ValueError as error:
        return str(error)


@behaviour
def b25(t: Any) -> Any:
    f = t.custom_gradient(lambda x, y: (x * y, lambda d: (d * 10.0, d * 20.0)))
    return gradient(t, lambda x, y: f(x=x, y=y), 2.0, 3.0), gradient(
        t, lambda x, y: f(y=y, x=x), 2.0, 3.0
    )


@behaviour
def b26(t: Any) -> Any:
    def boom(d):
        raise RuntimeError("boom")

    return caught(lambda: gradient(t, t.custom_gradient(lambda x: (x * 1.0, boom)), 3.0), "boom")


@behaviour
def b27(t: Any) -> Any:
    calls = []
    f = t.custom_gradient(lambda x: (x * 1.0, lambda d: calls.append(1)))
    f(t.constant(3.0))
    return gradient(t, lambda y: f(t.constant(3.0)) + y, 2.0), len(calls)


@behaviour
def b28(t: Any) -> Any:
    calls = []

    @t.custom_gradient
    def f(x):
        calls.append("f")

        def grad_fn(d):
            calls.append("grad_fn")
            return d * 5.0

        return x * 1.0, grad_fn

    x = t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    return [plain(tape.gradient(y, x)) for _ in range(2)], calls


@behaviour
def b29(t: Any) -> Any:
    inner = t.custom_gradient(lambda x: (x * x, lambda d: d * 1000.0))
    outer = t.custom_gradient(lambda x: (inner(x) * 3.0, lambda d: d * 10.0))
    return gradient(t, outer, 2.0), gradient(t, lambda x: inner(x) * 3.0, 2.0)


@behaviour
def b30(t: Any) -> Any:
    seen = []

    def grad_fn(d):
        seen.append(plain(d))
        return d

    f = t.custom_gradient(lambda x: (x * 1.0, grad_fn))
    return gradient(t, f, [1.0, 2.0], output_gradients=t.constant([5.0, 7.0])), seen


@behaviour
def b31(t: Any) -> Any:
    seen = []

    @t.custom_gradient
    def f(x):
        def grad_fn(d):
            seen.extend([d.dtype == "float64", list(d.shape)])
            return t.cast(t.np.sum(d), "float32")

        return t.cast(t.np.stack([x, x]), "float64"), grad_fn

    x = t.constant(1.0, "float32")
    return gradient(t, f, x), seen


@behaviour
def b32(t: Any) -> Any:
    f = t.custom_gradient(lambda x: (x * 1.0, lambda d: t.np.stack([d, d])))
    return caught(lambda: gradient(t, f, 3.0))[0]


# ---- variables


def _reading(t: Any, w: Any, grad_fn: Callable[..., Any]) -> Any:
    return t.custom_gradient(lambda x: (x * w, grad_fn))


@behaviour
def b33(t: Any) -> Any:
    w = t.Variable(2.0)
    f = _reading(t, w, lambda d: d)
    text = (
        "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function "
        "uses variables: "
    )

    def stopped():
        with t.GradientTape() as tape, tape.stop_recording():
            f(t.constant(3.0))

    return caught(lambda: f(t.constant(3.0)), text), caught(stopped, text)


@behaviour
def b34(t: Any) -> Any:
    w, seen = t.Variable(2.0), []

    def default(d, variables=None):
        seen.append([v is w for v in variables])
        return d * 10.0, [d * 20.0]

    def keyword(d, *, variables):
        return default(d, variables)

    def every(d, **kw):
        return default(d, **kw)

    grads = []
    for grad_fn in (default, keyword, every):
        x = t.constant(3.0)
        grads.append(gradient(t, _reading(t, w, grad_fn), x, of=[x, w]))
    return grads, seen


@behaviour
def b35(t: Any) -> Any:
    w, counts = t.Variable(2.0), []

    def grad_fn(d, variables):
        counts.append(len(variables))
        return d, [d * 20.0]

    return gradient(t, t.custom_gradient(lambda x: (x * w + w, grad_fn)), 3.0, of=w), counts


@behaviour
def b36(t: Any) -> Any:
    w, x = t.Variable(2.0), t.constant(3.0)
    f = t.custom_gradient(lambda x, w: (x * w, lambda d: (d * 10.0, d * 20.0)))
    g = t.custom_gradient(lambda xw: (xw[0] * xw[1], lambda d: [d * 10.0, d * 20.0]))
    pairs = [gradient(t, lambda x: f(x, w), x, of=[x, w])]
    return [*pairs, gradient(t, lambda x: g([x, w]), x, of=[x, w])]


@behaviour
def b37(t: Any) -> Any:
    w, u, x = t.Variable(2.0), t.Variable(5.0), t.constant(3.0)

    @t.custom_gradient
    def f(x, w):
        return x * w * u, lambda d, variables=None: ((d * 10.0, d * 20.0), [d * 30.0])

    return gradient(t, lambda x: f(x, w), x, of=[x, w, u])


@behaviour
def b38(t: Any) -> Any:
    w, x = t.Variable(2.0), t.constant(3.0)
    one = t.custom_gradient(lambda x, v: (x * v, lambda d: d * 10.0))
    two = t.custom_gradient(lambda x, v: (x * v, lambda d: (d * 10.0, d * 20.0)))
    return [_result(lambda f=f: gradient(t, lambda x: f(x, v=w), x, of=[x, w])) for f in (one, two)]


@behaviour
def b39(t: Any) -> Any:
    w, seen = t.Variable(2.0, trainable=False), []

    def grad_fn(d, variables=None):
        seen.append(variables)
        return d * 10.0

    return (
        gradient(t, _reading(t, w, grad_fn), 3.0),
        seen,
        plain(_reading(t, w, lambda d: d)(t.constant(3.0))),
    )


@behaviour
def b40(t: Any) -> Any:
    n = t.Variable(3)
    f = t.custom_gradient(lambda x: (x * t.cast(n + 0, "float32"), lambda d: d))
    return caught(lambda: f(t.constant(3.0, "float32")), "must accept keyword argument")


@behaviour
def b41(t: Any) -> Any:
    w = t.Variable(2.0)

    def grad_fn(d, variables):
        return d, [d * 20.0]

    def assigned(x):
        w.assign(4.0)
        return x * 1.0, grad_fn

    f = t.custom_gradient(lambda x: (x * t.stop_gradient(w), grad_fn))
    return gradient(t, f, 3.0, of=w), gradient(t, t.custom_gradient(assigned), 3.0, of=w)


@behaviour
def b42(t: Any) -> Any:
    w = t.Variable(2.0)
    return gradient(t, t.custom_gradient(lambda x: (x * 1.0, lambda d: d * w)), 3.0)


@behaviour
def b43(t: Any) -> Any:
    w = t.Variable(2.0)

    def returning(grads):
        f = _reading(t, w, lambda d, variables: (d, grads))
        return lambda: gradient(t, f, 3.0, of=w)

    one, text = t.constant(1.0), "Must return gradient for each variable from @custom_gradient"
    return [
        *(caught(returning(grads), text) for grads in ([one, one], [])),
        returning([None])(), caught(returning(None))[0],
    ]  # fmt: skip


@behaviour
def b44(t: Any) -> Any:
    w, x = t.Variable(2.0), t.constant(3.0)
    f = _reading(t, w, lambda d, variables: (d * 10.0, [d * 20.0]))
    with t.GradientTape() as tape:
        y = f(x)
    unwatched = plain(tape.gradient(y, [x, w]))
    with t.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = f(x)
    return unwatched, plain(tape.gradient(y, [x, w]))


@behaviour
def b45(t: Any) -> Any:
    w, x = t.Variable([1.0, 1.0]), t.constant([1.0, 2.0, 3.0])

    @t.custom_gradient
    def linear(x):
        def grad_fn(d, variables):
            return d * w[1], [t.np.stack([t.np.sum(d), t.np.sum(d * x)])]

        return w[1] * x + w[0], grad_fn

    return plain(linear(x)), gradient(t, linear, x, of=[x, w])


@behaviour
def b46(t: Any) -> Any:
    f = t.custom_gradient(lambda x: (x * 1.0, lambda d, variables: d))
    return caught(lambda: gradient(t, f, 3.0), "missing 1 required")


@behaviour
def b47(t: Any) -> Any:
    names, variables = [], [t.Variable(1.0, name=name) for name in ("c", "a", "b")]

    @t.custom_gradient
    def f(x):
        def grad_fn(d, variables):
            names.append([v.name[0] for v in variables])
            return d, [d] * 3

        return x * variables[1] * variables[2] * variables[0], grad_fn

    t.function(lambda x: gradient_in(t, f, x))(t.constant(3.0))
    return names


def gradient_in(t: Any, function: Callable[..., Any], x: Any) -> Any:
    """Return a gradient by one tensor, without its numbers being asked for."""
    with t.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


# ---- higher order


def twice(t: Any, function: Callable[[Any], Any], value: float = 2.0) -> list[Any]:
    """Return the first and the second derivative."""
    x = t.constant(value)
    with t.GradientTape() as outer:
        outer.watch(x)
        first = gradient_in(t, function, x)
    return plain([first, outer.gradient(first, x)])


@behaviour
def b48(t: Any) -> Any:
    def exponential(x):
        e = t.np.exp(x)
        return e, lambda d: d * e

    functions = (
        lambda x: (x * x * x, lambda d: d * 3.0 * x * x),
        exponential,
        lambda x: (x * x, lambda d: d * 100.0),
        lambda x: (x * x, lambda d: d * float(x.numpy())),
    )
    return [twice(t, t.custom_gradient(f)) for f in functions]


@behaviour
def b49(t: Any) -> Any:
    calls = []

    @t.custom_gradient
    def inner(x):
        def second(d):
            calls.append(1)
            return d * 77.0

        return x * 3.0, second

    way1 = t.custom_gradient(lambda x: (x * x, lambda d: d * inner(x)))
    step = t.custom_gradient(
        lambda x, d: (d * 5.0 * x / 2.0, lambda dd: (dd * 7.0 * d, dd * 5.0 * x / 2.0))
    )
    way2 = t.custom_gradient(lambda x: (5.0 * x * x / 4.0, lambda d: step(x, d)))
    return twice(t, way1), len(calls), twice(t, way2), twice(t, lambda x: way2(x) * x)


@behaviour
def b50(t: Any) -> Any:
    calls = []

    @t.custom_gradient
    def op(x):
        @t.custom_gradient
        def grad_fn(dy):
            def transpose(ddy):
                calls.append(1)
                return ddy * 1000.0

            return dy * 5.0 * x, transpose

        return x * x * 2.5, grad_fn

    eager = twice(t, op)
    in_function = t.function(lambda x: [gradient_in(t, lambda x: gradient_in(t, op, x), x)])
    return eager, plain(in_function(t.constant(2.0))), twice(t, lambda x: op(x) * x)


@behaviour
def b51(t: Any) -> Any:
    def cube(x):
        return x * x * x

    @t.custom_gradient
    def f(x):
        return cube(x) * 2.0, lambda d: d * 2.0 * gradient_in(t, cube, x)

    return twice(t, f)


@behaviour
def b52(t: Any) -> Any:
    x, w = t.constant(2.0), t.Variable(3.0)

    @t.custom_gradient
    def f(x):
        def grad_fn(d, variables):
            return d * 2.0 * x * w * w, [d * 2.0 * x * x * w]

        return x * x * w * w, grad_fn

    with t.GradientTape() as outer:
        outer.watch(x)
        with t.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        gx, gw = tape.gradient(y, [x, w])
        total = gx + gw
    return plain([gx, gw]), plain(outer.gradient(total, [x, w]))
