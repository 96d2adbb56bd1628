"""What a user's gradient function returns is refused, or has the required shape and dtype.

It ends no process, whatever rule it arrives at: these programs are run in a process of their own.
"""

from __future__ import annotations

from laws.law import Draw, Law

#: For an input of shape (2, 3) and float64.
RETURNED = (
    "np.ones((2, 3))", "None", "np.ones(())", "3", "np.float64(3)", "np.ones(7)", "np.ones((3, 2))",
    "np.ones((500, 500))", "np.ones((0, 3))", "np.ones((1, 3))", "np.ones((1, 2, 3))",
    "np.ones((2, 3), int)", "np.ones((2, 3), np.float32)", "np.ones((2, 3)) * 1j",
    "np.ones((2, 3)) > 0", "np.ones((2, 3), object)", "np.zeros((2, 3), 'U5')",
    "np.zeros((2, 3), 'M8[s]')", "np.zeros((2, 3), 'i4, f8')", "'text'", "b'12'", "object()", "[]",
    "[None]", "{}", "(None, None)", "np.array(None)", "[[1.0] * 3] * 2", "iter(())",
    "V", "V3", "tfopt.constant(np.ones((2, 3)))",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0])", "tfopt.IndexedSlices(np.ones((1, 3)), [2])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [-1])", "tfopt.IndexedSlices(np.ones((1, 2)), [0])",
    "tfopt.IndexedSlices(np.ones(3), 0)", "tfopt.IndexedSlices(np.ones((2, 3)), [0])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0], (2, 3))", "tfopt.IndexedSlices([], [])",
    "tfopt.IndexedSlices(np.ones((1, 3)), [0], (9, 3))", "tfopt.IndexedSlices('ab', [0.5])",
    "tfopt.IndexedSlices(np.ones((1, 3)), np.array([0], np.uint8))",
    "tfopt.IndexedSlices(np.ones((1, 3), np.float32), [1], [2, 3])",
)  # fmt: skip
BEFORE = {
    "a product": "x * 1.0", "a slice": "x[:2]", "a sum": "np.sum(x[None], axis=0)",
    "a mean": "np.mean(x[:, None], axis=1)", "rows": "np.take(x, [0, 1], axis=0)",
    "an extreme": "np.max(x[None], axis=0)", "a norm": "np.linalg.norm(x[None], axis=0)",
    "stacked": "np.concatenate([x, x])[:2]", "composed": "np.average(x[None], axis=0)",
}  # fmt: skip
HOW = {
    "overriding": "overridden(x)", "registered": "apply(UNKNOWN, (x,))", "custom": "custom(x)",
    "custom, of a variable": "with_variable(x)", "one of two": "custom_of_two(x, 2.0 * x)",
}  # fmt: skip

PROGRAM = """
import warnings
import numpy as np
import tfopt
from tfopt.core.engine import REGISTERED, Op, apply

warnings.simplefilter("ignore")
v, V, V3 = (tfopt.Variable(np.ones(shape)) for shape in ((2, 3), (2, 3), 3))
before = np.arange(6.0).reshape(2, 3) + 1.0
UNKNOWN = Op("unknown to rules", lambda a: a + 1.0)
for name in ("Returned", "unknown to rules"):
    REGISTERED.pop(name, None)
    tfopt.RegisterGradient(name)(lambda op, g: {returned})


def overridden(x):
    with tfopt.gradient_override_map({{"square": "Returned"}}):
        return np.square(x)


custom = tfopt.custom_gradient(lambda x: (x * 1.0, lambda g: {returned}))
with_variable = tfopt.custom_gradient(
    lambda x: (x * v, lambda g, variables: (g, [{returned}])))
custom_of_two = tfopt.custom_gradient(
    lambda x, y: (x * y, lambda g: (g * y, {returned})))


def f(x):
    x = {before}
    return {how}


def gradients():
    x = tfopt.constant(before)
    with tfopt.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = {f}(x)
        grads = tape.gradient(y, [x, v])
        sums = [np.sum(np.square(g)) for g in grads if g is not None]
    return [*grads, *(outer.gradient(sums, [x, v]) if {order} > 1 and sums else ())]


try:
    found = gradients()
except (ValueError, TypeError) as error:
    assert str(error), repr(error)
    assert {wrong}, f"refused: {{error!r}}"
else:
    assert not {bad}, "accepted"
    for g in found:
        dense = None if g is None else np.asarray(g)
        assert dense is None or (dense.shape, dense.dtype) == ((2, 3), before.dtype), g
    if {returned!r} == "np.ones((2, 3))" and {how!r} == "custom(x)" and {before_!r} == "a product":
        assert np.asarray(found[0]).tolist() == np.ones((2, 3)).tolist()
"""
#: What has to be taken: anything else of these has another shape, or no numbers.
TAKEN = {
    *RETURNED[:2], *(r for r in RETURNED if r.startswith("np.ones((2, 3)") and "object" not in r),
    "V", "tfopt.constant(np.ones((2, 3)))", RETURNED[32], RETURNED[38], RETURNED[43],
}  # fmt: skip


def program(draw: Draw) -> str:
    levels = draw.levels
    returned, how = levels["returned"], HOW[levels["how"]]
    # a list is a list of gradients; a list or an empty tuple may be none at all
    listed = returned in ("[]", "[None]", "{}", "(None, None)", "[[1.0] * 3] * 2", "iter(())")
    return PROGRAM.format(
        returned=returned,
        before=BEFORE[levels["before"]],
        before_=levels["before"],
        how=how,
        f="tfopt.function(f)" if levels["recorded"] == "traced" else "f",
        order=levels["order"],
        wrong=listed or returned not in TAKEN,
        bad=not listed and returned not in TAKEN,
    )


LAW = Law(
    "tape_returned",
    {
        "returned": RETURNED,
        "how": [*HOW],
        "before": [*BEFORE],
        "recorded": ("eager", "traced"),
        "order": ("1", "2"),
    },
    program,
    alone=True,
    further=40,
)
