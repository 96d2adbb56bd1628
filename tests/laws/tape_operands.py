"""No operand of a NumPy function, of any type, crashes the process or breaks the tape.

NumPy makes of odd operands what is no array, or none at all: so these programs are run in a process
of their own. What else was recorded keeps its gradient.
"""

from __future__ import annotations

from laws.law import Draw, Law
from laws.tape_calls import functions

OPERANDS = (
    "none", "1", "np.array([1, 2])", "np.array([1, 2], object)", "np.array([], object)",
    "np.array(None)", "np.array([[1, 2]])", "np.zeros((0, 2))", "np.array(['a', 'b'])", "()", "[]",
    "'1'", "b'2'", "2.5", "np.array([1, 2], bfloat16)", "np.array([1, 2], 'M8[s]')",
    "np.ones(5000, object)", "np.zeros(2, 'i4, f8')", "[[], [1]]", "Ellipsis",
)  # fmt: skip
KEYWORDS = (
    "",
    "axis=()",
    "axis=0",
    "weights=np.array([1, 2], object)",
    "initial=None",
    "dtype='U'",
)
CALLS = {
    "before": "x, {operand}", "after": "{operand}, x", "in a list": "[x, {operand}]",
    "twice": "x, {operand}, {operand}",
}  # fmt: skip
GROUPS = 6
#: What may make as many results as an operand says, or calls it.
UNBOUNDED = ("apply_along_axis", "save", "savez", "kron", "outer", "vander")

PROGRAM = """
import warnings
import numpy as np
import tfopt
from ml_dtypes import bfloat16
from scipy import special
from tfopt.core.nest import flatten

warnings.simplefilter("ignore")
np.seterr(all="ignore")
done = 0
for name in {names}:
    x = {x}
    with tfopt.GradientTape(persistent=True) as tape:
        tape.watch(x)
        other = np.sum(x * 3.0)
        try:
            y = eval(name)({call})
        except Exception:
            y = None
    done += y is not None
    for part in flatten(y):
        if isinstance(part, tfopt.Tensor):
            try:
                tape.gradient(part, x)
            except Exception:
                pass
    assert np.asarray(tape.gradient(other, x)).tolist() == (np.asarray(x) * 0 + 3).tolist(), name
"""


def program(draw: Draw) -> str:
    levels = draw.levels
    names = [name for name in functions() if name.partition(".")[2] not in UNBOUNDED]
    part = names[int(levels["part"]) :: GROUPS]
    operand, keyword = levels["operand"], levels["keyword"]
    call = "x" if operand == "none" else CALLS[levels["place"]].replace("{operand}", operand)
    return PROGRAM.format(
        names=part,
        x={"vector": "tfopt.constant([0.3, 0.7])", "scalar": "tfopt.constant(0.7)",
           "empty": "tfopt.constant(np.zeros((0, 2)))",
           "large": "tfopt.constant(np.full(5000, 0.5))"}[levels["x"]],
        call=call + (f", {keyword}" if keyword else ""),
    )  # fmt: skip


LAW = Law(
    "tape_operands",
    {
        "part": [str(k) for k in range(GROUPS)],
        "operand": OPERANDS,
        "place": [*CALLS],
        "keyword": KEYWORDS,
        "x": ("vector", "scalar", "empty", "large"),
    },
    program,
    alone=True,
)
