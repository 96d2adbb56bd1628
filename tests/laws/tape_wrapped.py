"""Wrapping a function changes neither its values nor its gradients of any order.

Wrappers are tfopt.function, recompute_grad and a custom gradient that is the true one; variables,
defaults and assignments go through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from laws.law import Draw, Law

WRAPPERS = ("plain", "function", "recompute_grad", "custom_gradient", "call of a function")

PROGRAM = """
import numpy as np
import tfopt

before = np.random.default_rng({seed}).uniform(0.2, 0.9, 3)
captured = tfopt.constant(before[::-1] + 0.5)


def made(wrapped):
    v = tfopt.Variable(before + 1.0)
    other = {read}

    def f(x, k=1.5):
        return np.sin(x * other) * k + x

    value = f

    def true_gradient(x, k=1.5):
        def grad_fn(g, variables=()):
            slope = np.cos(x * other) * k * g
            grads = slope * other + g
            return (grads, [slope * x for _ in variables]) if variables else grads
        return value(x, k), grad_fn

    if wrapped:
        {inner}
        {outer}
    {inside}
    return f, v


def derivatives(f, v, order):
    x = tfopt.constant(before)
    found = []

    def of(order):
        if order == 0:
            return np.sum(f(x{k}) * np.array([1.0, 2.0, -1.0]))
        with tfopt.GradientTape(persistent={persistent}) as tape:
            tape.watch(x)
            y = of(order - 1)
            {stopped}
        g = tape.gradient(y, [x, v], None, "zero")
        found.append([np.array(tfopt.stop_gradient(part)) for part in g])
        return np.sum(g[0] * g[0]) + np.sum(g[1] * x)

    of(order)
    return found


results = []
for wrapped in (False, True):
    f, v = made(wrapped)
    seen = []
    for call in range(3):
        seen += derivatives(f, v, {order})
        seen.append([np.array(f(tfopt.constant(before){k})), np.array(v)])
        {between}
    results.append(seen)
for plain, wrapped in zip(*results, strict=True):
    for a, b in zip(plain, wrapped, strict=True):
        np.testing.assert_allclose(b, a, 1e-9, 1e-9)
"""
WRAP = {
    "plain": "pass",
    "function": "f = tfopt.function(f)",
    "recompute_grad": "f = tfopt.recompute_grad(f)",
    "custom_gradient": "f = tfopt.custom_gradient(true_gradient)",
    "call of a function": "f = tfopt.function(lambda x, k=1.5, f=f: f(x, k=k))",
}
READ = {"a constant": "captured", "a variable": "v"}
K = {"left out": "", "by name": ", k=2.0", "by place": ", 2.0"}
INSIDE = {
    "nothing": "",
    "assigned before": (
        "g = f\n    f = tfopt.function(lambda x, k=1.5: (v.assign_add(x), g(x, k=k))[1])"
    ),
}  # fmt: skip


def program(draw: Draw) -> str:
    levels = draw.levels
    return PROGRAM.format(
        seed=draw.seed % 1000,
        read=READ[levels["reads"]],
        inner=WRAP[levels["inner"]],
        outer=WRAP[levels["outer"]],
        inside=INSIDE[levels["inside"]],
        k=K[levels["k"]],
        order=levels["order"],
        persistent=levels["tape"] == "persistent",
        stopped="with tape.stop_recording():\n                y * 2.0"
        if levels["stop_recording"] == "yes"
        else "pass",
        between={
            "nothing": "pass",
            "assigned": "v.assign_add(np.full(3, 0.25))",
            "gradient step": "tfopt.optimizers.SGD(0.1).step(v, np.ones(3))",
        }[levels["between"]],
    )


def possible(levels: Mapping[str, str]) -> bool:
    """The true gradient is of f itself, and what a place holds has a gradient of its own."""
    custom = "custom_gradient" in (levels.get("inner"), levels.get("outer"))
    if levels.get("outer") == "custom_gradient" and levels.get("inner", "plain") != "plain":
        return False
    return not (custom and levels.get("k") == "by place")


LAW = Law(
    "tape_wrapped",
    {
        "inner": WRAPPERS,
        "outer": WRAPPERS,
        "reads": ("a constant", "a variable"),
        "order": ("1", "2", "3"),
        "k": tuple(K),
        "between": ("nothing", "assigned", "gradient step"),
        "inside": tuple(INSIDE),
        "tape": ("once", "persistent"),
        "stop_recording": ("no", "yes"),
    },
    program,
    possible,
    alone=True,
    further=10,
)
