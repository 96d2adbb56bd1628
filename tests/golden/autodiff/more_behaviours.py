"""The rest of the behaviours: B53 to B72, functions, tapes, rows, recomputing, the registry."""

from __future__ import annotations

from typing import Any

from golden.autodiff.behaviours import (
    BEHAVIOURS,
    behaviour,
    gradient,
    gradient_in,
    scaled,
    twice,
)
from golden.autodiff.facades import caught, plain

__all__ = ["BEHAVIOURS"]

# ---- functions


@behaviour
def b53(t: Any) -> Any:
    f = scaled(t, 100.0)
    inside = t.function(lambda x: gradient_in(t, f, x))
    outside = t.function(f)
    x = t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = outside(x)
        z = y * 2.0
    return plain(inside(x)), gradient(t, outside, 3.0), plain([tape.gradient(v, x) for v in (y, z)])


@behaviour
def b54(t: Any) -> Any:
    calls: list[str] = []

    @t.custom_gradient
    def f(x):
        calls.append("f")

        def grad_fn(d):
            calls.append("grad_fn")
            return d * 100.0

        return x * x, grad_fn

    def counts():
        return [calls.count("f"), calls.count("grad_fn")]

    step = t.function(lambda x: gradient_in(t, f, x))
    found = []
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        step(t.constant(value))
    found.append(counts())
    step(t.constant([1.0, 2.0]))
    found.append(counts())
    calls.clear()
    forward = t.function(f)
    forward(t.constant(1.0))
    return [*found, counts()]


@behaviour
def b55(t: Any) -> Any:
    f = t.function(lambda x, k=None: x * 2)
    calls: list[Any] = [
        (1.0,), (2.0,), ([1.0, 2.0],), ([3.0, 4.0],), (1,), (1.0, 2.0), (5.0, 2.0),
    ]  # fmt: skip
    counts = []
    for values in calls:
        f(*(t.constant(v) for v in values))
        counts.append(t.traces(f))
    f(t.constant(1.0), k=t.constant(2.0))
    return [*counts, t.traces(f)]


@behaviour
def b56(t: Any) -> Any:
    state, w = {"scale": 2.0}, t.Variable(1.0)
    f = t.function(lambda x: x * state["scale"] * w)
    found = [plain(f(t.constant(1.0)))]
    state["scale"] = 5.0
    found.append(plain(f(t.constant(1.0))))
    w.assign(10.0)
    found.append(plain(f(t.constant(1.0))))
    return [*found, plain(f(t.constant([1.0])))]


@behaviour
def b57(t: Any) -> Any:
    w, x = t.Variable(2.0), t.constant(3.0)
    f = t.custom_gradient(lambda x, y: (x * y, lambda d: (d * 10.0, d * 20.0)))
    by_name = t.function(lambda x, y: f(x, y=y))

    def outcome():
        return gradient(t, by_name, 3.0, 4.0)

    text = "The custom_gradient decorator currently supports keywords arguments only when eager"
    without = t.function(t.custom_gradient(lambda x: (x * w, lambda d: d)))
    full = t.function(
        t.custom_gradient(lambda x: (x * w, lambda d, variables: (d * 10.0, [d * 20.0])))
    )
    return [
        caught(outcome, text), caught(lambda: without(x), "must accept keyword argument"),
        gradient(t, full, x, of=[x, w]),
    ]  # fmt: skip


@behaviour
def b58(t: Any) -> Any:
    x, k, w = t.constant(2.0), t.constant(3.0), t.Variable(5.0)
    f = t.function(lambda x: x * k * w)
    with t.GradientTape() as tape:
        tape.watch([x, k])
        y = f(x)
    return plain(tape.gradient(y, [x, k, w]))


@behaviour
def b59(t: Any) -> Any:
    cube = t.function(lambda x: x * x * x)
    custom = t.function(t.custom_gradient(lambda x: (x * x * x, lambda d: d * 3.0 * x * x)))
    return twice(t, cube), twice(t, custom)


@behaviour
def b60(t: Any) -> Any:
    runs = []

    @t.function
    def f(x):
        runs.append(1)
        raise KeyError("lost")

    return [caught(lambda: f(t.constant(1.0)), "lost") for _ in range(2)], len(runs)


# ---- tapes


@behaviour
def b61(t: Any) -> Any:
    x = t.constant(3.0)

    def record():
        with t.GradientTape() as tape:
            tape.watch(x)
            return tape, x * x

    used, y = record()
    used.gradient(y, x)
    tape, y = record()
    never, outside = t.GradientTape(), record()[0]
    second = "A non-persistent GradientTape can only be used to compute one set of gradients"
    none = (
        "Argument `target` should be a list or nested structure of Tensors, Variables or "
        "CompositeTensors to be differentiated, but received None."
    )

    def reenter():
        with tape, tape:
            pass

    def stop(tape):
        with tape.stop_recording():
            pass

    def watch_number():
        with t.GradientTape() as tape:
            tape.watch(3.0)

    wide, tall = t.constant([[1.0, 2.0]] * 3), t.constant([[1.0, 2.0]] * 2)
    return [
        caught(lambda: used.gradient(y, x), second),
        caught(lambda: never.gradient(y, x), second),
        caught(lambda: tape.gradient(None, x), none), plain(tape.gradient(y, x)),
        caught(reenter, "Tape is still recording"),
        caught(lambda: stop(never), "Trying to stop recording a tape which is not recording."),
        caught(lambda: stop(outside), "Tape is not recording."),
        caught(outside.reset, "Tape is not recording."),
        caught(watch_number, "Passed in object 3.0 of type 'float', not tf.Tensor"),
        caught(lambda: t.GradientTape().watch(x))[0],
        caught(lambda: record()[0].gradient(y, x, unconnected_gradients="nonsense"),
               "Unknown value for unconnected_gradients: 'nonsense'"),
        caught(lambda: outside.batch_jacobian(wide, tall),
               "Need first dimension of target shape ((3, 2)) and source shape ((2, 2)) to match."),
        caught(lambda: record()[0].batch_jacobian(t.constant([1.0]), t.constant([1.0])),
               "must have rank at least 2"),
    ]  # fmt: skip


@behaviour
def b62(t: Any) -> Any:
    x = t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        double, square = x * 2.0, x * x
    targets = [[double, square], {"a": double, "b": square}, x, [square, x], [square, square]]
    return [plain(tape.gradient(target, x)) for target in targets]


@behaviour
def b63(t: Any) -> Any:
    x, k, n = t.constant(3.0), t.constant([1.0, 2.0]), t.constant(4)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * t.np.sum(k)
    return plain(tape.gradient(y, [k, n])), plain(
        tape.gradient(y, [k, n], unconnected_gradients="zero")
    )


@behaviour
def b64(t: Any) -> Any:
    x, tape = t.constant(3.0), t.GradientTape()
    with tape:
        tape.watch(x)
        y = x * x
    with tape:
        z = y * 2.0
    first = plain(tape.gradient(z, x))
    with tape:
        tape.watch(x)
        z = x * 5.0
    return first, plain(tape.gradient(z, x))


@behaviour
def b65(t: Any) -> Any:
    x = t.constant(3.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x * x
        g = tape.gradient(y, x)
    found = [plain([g, tape.gradient(g, x)])]
    with t.GradientTape() as outer:
        outer.watch(x)
        with t.GradientTape() as inner:
            inner.watch(x)
            with inner.stop_recording():
                y = x * 8.0
    found.append(plain([inner.gradient(y, x), outer.gradient(y, x)]))
    with t.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        tape.reset()
        z = x * 5.0
    return [*found, plain(tape.gradient([y, z], x))]


@behaviour
def b66(t: Any) -> Any:
    w, x = t.Variable(2.0), t.constant(3.0)
    with t.GradientTape() as tape:
        y = w * w
        w.assign(5.0)
        z = y + w * w
    found = [plain(tape.gradient(z, w))]
    with t.GradientTape() as tape:
        tape.watch(x)
        w.assign(x * 2.0)
        y = w * w
    return [*found, plain(tape.gradient(y, [x, w]))]


@behaviour
def b67(t: Any) -> Any:
    x, k = t.constant([1.0, 2.0]), t.constant([1.0, 2.0, 3.0])
    f = scaled(t, 100.0)
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        square, custom, total = x * x, f(x), t.np.sum(x * x)
    found = [plain(tape.jacobian(y, x)) for y in (square, custom, total)]
    found.append(plain(tape.jacobian(square, [x, k])))
    zeros = tape.jacobian(square, [x, k], unconnected_gradients="zero")
    found.append([list(zero.shape) for zero in zeros])
    rows = t.constant([[1.0, 2.0], [3.0, 4.0]])
    with t.GradientTape() as tape:
        tape.watch(rows)
        y = rows * rows
    return [*found, plain(tape.batch_jacobian(y, rows))]


# ---- rows, recomputing, passing through, the registry


def _take(t: Any, x: Any, indices: Any) -> Any:
    return t.np.take(x, t.np.array(indices), axis=0)


@behaviour
def b68(t: Any) -> Any:
    table = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    x = t.constant(table)
    found = [
        gradient(t, lambda x: _take(t, x, [0, 0]) * 3.0, table),
        gradient(t, lambda x: (_take(t, x, [0, 1]) + 0.0, _take(t, x, [1, 2]) * 2.0), table),
        gradient(t, lambda x: (_take(t, x, [0, 1]), x * 2.0), table),
        gradient(t, lambda x: _take(t, x, [[0, 1], [2, 2]]), table),
    ]
    with t.GradientTape(persistent=True) as tape:
        tape.watch(x)
        double = x * 2.0
        y = _take(t, double, [0, 1])
    return [*found, plain([tape.gradient(y, x), tape.gradient(y, double)])]


@behaviour
def b69(t: Any) -> Any:
    def rows(d):
        return t.IndexedSlices(t.constant([20.0]), t.constant([1]), t.constant([3]))

    w = t.Variable([1.0, 2.0, 3.0])
    f = t.custom_gradient(lambda x: (t.np.sum(x), rows))
    g = t.custom_gradient(lambda x: (x * t.np.sum(w), lambda d, variables: (d, [rows(d)])))
    back = t.custom_gradient(lambda x: (x * 1.0, lambda d: d * 5.0 + 0.0))
    densified = t.custom_gradient(lambda x: (x * 1.0, _densely(t)))
    return [
        _rounded(gradient(t, f, [1.0, 2.0, 3.0])),
        _rounded(gradient(t, g, 3.0, of=w)),
        gradient(t, lambda x: f(x * 2.0), [1.0, 2.0, 3.0]),
        gradient(t, lambda x: back(x)[1:2], [1.0, 2.0]),
        gradient(t, lambda x: _take(t, densified(x), [0, 1]), [1.0, 2.0]),
    ]


def _densely(t: Any) -> Any:
    def grad_fn(d):
        return t.np.reshape(t.np.array([1.0], "float32") * d, (-1,))

    return grad_fn


def _rounded(slices: Any) -> Any:
    values, indices, _ = slices["rows"]
    return values, indices


@behaviour
def b70(t: Any) -> Any:
    runs: list[str] = []
    w = t.Variable(2.0)

    def f(x):
        runs.append("f")
        return x * w * w

    r = t.recompute_grad(f)
    found: list[Any] = [plain(r(t.constant(3.0)))]
    runs.clear()
    x = t.constant(3.0)
    found.append([gradient(t, r, x, of=[x, w]), len(runs)])
    runs.clear()
    with t.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(4):
            y = r(y)
        found.append(len(runs))
    tape.gradient(y, x)
    found.append(len(runs))
    unused = t.recompute_grad(lambda x, y: x * 2.0)
    found.append(gradient(t, unused, 3.0, 4.0))
    runs.clear()
    outer = t.recompute_grad(lambda x: r(r(x)))
    with t.GradientTape() as tape:
        tape.watch(x)
        y = outer(x)
    before = len(runs)
    found.append([plain(tape.gradient(y, x)), before, len(runs)])
    gathered = t.recompute_grad(lambda x: _take(t, x, [0, 0]))
    found.append(gradient(t, gathered, [1.0, 2.0]))
    cube = t.recompute_grad(lambda x: x * x * x)
    try:
        found.append(twice(t, lambda x: cube(x) * cube(x), 3.0))
    except NotImplementedError as error:
        found.append(str(error)[:14])
    return found


@behaviour
def b71(t: Any) -> Any:
    v, w, x = t.Variable(0.0), t.Variable(3.0), t.constant(3.0)
    with t.GradientTape() as tape:
        tape.watch(x)
        y = t.grad_pass_through(v.assign)(x * x)
    found: list[Any] = [plain([y + 0.0, v + 0.0]), plain(tape.gradient(y, x))]
    times = t.grad_pass_through(lambda x: x * w)
    found.append(gradient(t, times, x, of=[x, w]))
    pair = t.grad_pass_through(lambda x, y: x * y)
    text = "expected to return 2 gradients, but returned 1 instead."
    found.append(caught(lambda: gradient(t, pair, 3.0, 4.0), text))
    total = t.grad_pass_through(lambda x: t.np.sum(x))
    found.append(gradient(t, total, [1.0, 2.0]))
    named = t.grad_pass_through(lambda x: {"a": x * 7.0})
    return [*found, gradient(t, lambda x: named(x)["a"], 3.0)]


_registrations = iter(range(10**9))


@behaviour
def b72(t: Any) -> Any:
    name = f"Behaviour72-{next(_registrations)}"

    def function(op, d):
        return d

    found = [
        t.RegisterGradient(name)(function) is function,
        caught(lambda: t.RegisterGradient(name)(function), "Registering two gradient with name "),
        caught(lambda: t.RegisterGradient(5), "op_type must be a string"),
        caught(lambda: t.no_gradient(5), "op_type must be a string"),
    ]

    def aside(x):
        t.without_rule(x)
        return x * 2.0

    text = "gradient registry has no entry for: "
    in_function = t.function(t.without_rule)

    def called_and_watched():
        x = t.constant(3.0)
        with t.GradientTape() as tape:
            tape.watch(x)
            in_function(x)

    covered = t.custom_gradient(lambda x: (t.without_rule(x), lambda d: d * 5.0))
    return [
        *found,
        gradient(t, aside, 3.0),
        caught(lambda: gradient(t, t.without_rule, 3.0), text),
        gradient(t, covered, 3.0),
        caught(called_and_watched)[0],
    ]
