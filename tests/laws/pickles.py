"""A copied or pickled object continues with the same bits, independently of the original."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from textwrap import dedent

from common.optimizer_arguments import USUAL, arguments_of
from common.step_cases import ARGUMENTS
from common.wrapper_cases import USERS, WRAPPERS

from laws.law import Draw, Law, run
from tfopt import linear_model
from tfopt.optimizers import schedules

#: How a value becomes another one. Buffers of pickle 5 may be read-only, as Ray's are and memory
#: maps; what is in a file of joblib is mapped.
WAYS = {
    **{f"pickle {k}": f"pickle.loads(pickle.dumps(value, protocol={k}))" for k in range(6)},
    "deepcopy": "copy.deepcopy(value)",
    "buffers": "out_of_band(value, bytearray)",
    "read-only buffers": "out_of_band(value, bytes)",
    "mapped": "mapped(value, 'r')",
    "mapped, copied on write": "mapped(value, 'c')",
    "compressed": "mapped(value, None)",
}

JOBLIB = tuple(name for name, way in WAYS.items() if way.startswith("mapped"))

START = """
import copy, os, pickle, tempfile
import joblib, numpy as np, tfopt
from scipy import sparse
from common.step_cases import ARGUMENTS
from tfopt import linear_model, optimizers
from tfopt.optimizers import schedules
from common.wrapper_cases import USERS, WRAPPERS

def out_of_band(value, kind):
    buffers = []
    text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[kind(each.raw()) for each in buffers])

def mapped(value, mode):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "value")
        joblib.dump(value, path, compress=3 if mode is None else 0)
        return joblib.load(path, mmap_mode=mode)

def equal(a, b):
    assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()

random = np.random.default_rng({seed})
"""

OPTIMIZER = """
params = {{
    "dense": random.standard_normal(5).astype("f"),
    "table": random.standard_normal((6, 2)).astype("f"),
    "blocks": random.standard_normal(5000).astype("f"),
}}

def step(opt, params, seed):
    draws = np.random.default_rng(seed)
    grads = {{k: draws.standard_normal(v.shape).astype(v.dtype) for k, v in params.items()}}
    if {rows!r}:
        grads["table"] = tfopt.IndexedSlices(grads["table"][:3], np.array([1, 4, 1]))
    opt.step(params, grads)

opt = optimizers.{what}(**{{**ARGUMENTS[{what!r}], **{options!r}}})
for case in {wrappers!r}:
    opt = {{**WRAPPERS, **USERS}}[case].busy(opt)
for k in range(3):
    step(opt, params, k)
"""

GO_ON = """
if {replaced}:
    opt.flush()  # else the deferred updates of arrays that are replaced are refused
value = opt, params
other, theirs = {way}
# a user who wants to change what is read-only copies it
theirs = {{k: v if v.flags.writeable else np.array(v) for k, v in theirs.items()}}
before = {{k: v.copy() for k, v in params.items()}}
for k in range(3, 6):
    step(other, theirs, k)
for k, v in before.items():
    equal(params[k], v)
for k in range(3, 6):
    step(opt, params, k)
opt.flush(), other.flush()
for k, v in params.items():
    equal(v, theirs[k])
for a, b in zip(opt.get_weights(), other.get_weights(), strict=True):
    equal(a, b)
"""

DATA = """
X = random.standard_normal((40, 3))
y = (X[:, 0] + 0.3 * random.standard_normal(40) > 0).astype(float)
"""

FTRL = """
value = linear_model.{what}().partial_fit(X, y{classes})
other = {way}
for each in (value, other):
    each.partial_fit(X[::-1], y)
equal(value.coef_, other.coef_), equal(value.intercept_, other.intercept_)
equal(value.predict(X), other.predict(X))
"""

SDCA = """
value = linear_model.{what}({arguments}).fit(X, y)
other = {way}
equal(value.coef_, other.coef_), equal(value.predict(X), other.predict(X))
for each in (value, other):
    each.fit(X[::-1], y)
equal(value.coef_, other.coef_), equal(value.intercept_, other.intercept_)
"""

OTHERS = {
    "Variable": """
        value = tfopt.Variable(random.standard_normal(30), "v")
        other = {way}
        equal(value.numpy(), other.numpy())
        for each in (value, other):
            each.assign_add(np.ones(30))
            each.numpy()[3] = 7
        equal(value.numpy(), other.numpy())
        assert not np.shares_memory(value.numpy(), other.numpy())
    """,
    "two variables of an array": """
        array = random.standard_normal(30)
        value = tfopt.Variable(array), tfopt.Variable(array)
        a, b = {way}
        a.assign_add(np.ones(30))
        equal(a.numpy(), b.numpy()), equal(a.numpy(), array + 1)
    """,
    "IndexedSlices": """
        value = tfopt.IndexedSlices(random.standard_normal((3, 2)), np.array([1, 4, 1]), (9, 2))
        other = {way}
        a, b = np.zeros((9, 2)), np.zeros((9, 2))
        for each, into in ((value, a), (other, b)):
            tfopt.optimizers.SGD(0.5).step(into, each)
        equal(a, b)
    """,
    "SparseRows": """
        value = tfopt.SparseRows(sparse.random(9, 4, 0.5, "csr", random_state=3))
        other = {way}
        equal(value.dot(np.ones((4, 2))), other.dot(np.ones((4, 2))))
    """,
    "Bags": """
        value = tfopt.Bags([1, 8, 1], [0, 2], 9, "mean", [1.0, 2.0, 3.0])
        other = {way}
        table, g = random.standard_normal((9, 2)), random.standard_normal((2, 2))
        equal(value.lookup(table), other.lookup(table))
        equal(value.gradient(g).values, other.gradient(g).values)
    """,
    "SDCAPath": """
        X = random.standard_normal((40, 3))
        y = X[:, 0] > 0
        value = linear_model.sdca_path(X, y, l2s=[1.0, 0.5])
        other = {way}
        equal(value.coefs, other.coefs), equal(value.dual_gaps, other.dual_gaps)
    """,
    "Tensor": """
        value = tfopt.constant(random.standard_normal(30))
        other = {way}
        equal(value.numpy(), other.numpy()), equal((value * 2).numpy(), (other * 2).numpy())
    """,
}

SCHEDULE = """
value = schedules.{what}({arguments})
other = {way}
equal(np.array([value(k) for k in range(9)]), np.array([other(k) for k in range(9)]))
"""

SCHEDULES = tuple(
    name
    for name in schedules.__all__
    if isinstance(getattr(schedules, name), type) and "Schedule" not in name
)
ESTIMATORS = tuple(
    name for name in linear_model.__all__ if name.endswith(("Classifier", "Regressor", "CV"))
)


def _of(levels: Mapping[str, str]) -> str:
    """Return what makes the value, without what goes on."""
    stored = levels["storage"]
    options = {} if stored == "as it is" else {"storage": stored}
    if levels["rows"] != "none":
        options["sparse"] = levels["rows"]
    wrapper = [] if levels["wrapper"] == "none" else [levels["wrapper"]]
    return OPTIMIZER.format(
        what=levels["what"], rows=levels["rows"] != "none", options=options, wrappers=wrapper
    )


def program(draw: Draw) -> str:
    """Return a program that copies what it makes, and goes on with both."""
    what, way = draw.levels["what"], WAYS[draw.levels["way"]]
    text = START.replace("{seed}", str(draw.seed))
    if what in ARGUMENTS:
        return (
            text
            + _of(draw.levels)
            + GO_ON.format(way=way, replaced="bytes)" in way or "mapped" in way)
        )
    if what in SCHEDULES:
        of = arguments_of(getattr(schedules, what))
        arguments = ", ".join(f"{k}={USUAL[k]!r}" for k, v in of.items() if v.default is v.empty)
        return text + SCHEDULE.format(what=what, arguments=arguments, way=way)
    if what in ESTIMATORS:
        classes = ", classes=[0, 1]" if what == "FTRLClassifier" else ""
        arguments = "" if what.endswith("CV") else "warm_start=True"
        given = FTRL if what.startswith("FTRL") else SDCA
        return text + DATA + given.format(what=what, way=way, classes=classes, arguments=arguments)
    return text + dedent(OTHERS[what]).format(way=way)


@cache
def _takes_steps(what: str, wrapper: str, storage: str, rows: str) -> bool:
    """Whether an optimizer can have these options; others are refused, as other tests show."""
    levels = {"what": what, "wrapper": wrapper, "storage": storage, "rows": rows}
    try:
        run(START.replace("{seed}", "0") + _of(levels))
    except (TypeError, ValueError):
        return False
    return True


def possible(levels: Mapping[str, str]) -> bool:
    """Whether there is such a thing: options are those of optimizers."""
    plain = {"wrapper": "none", "storage": "as it is", "rows": "none"}
    if levels.get("what") == "two variables of an array" and levels.get("way") in JOBLIB:
        return False  # it writes an array once for each reference
    if "what" not in levels:
        return any(possible({**levels, "what": what}) for what in ("Variable", "Adam", "SGD"))
    if levels["what"] not in ARGUMENTS:
        return all(levels.get(name, level) == level for name, level in plain.items())
    return _takes_steps(levels["what"], **{k: levels.get(k, v) for k, v in plain.items()})


LAW = Law(
    name="pickles",
    factors={
        "what": (*ARGUMENTS, *OTHERS, *SCHEDULES, *ESTIMATORS),
        "way": (*WAYS,),
        "wrapper": ("none", *WRAPPERS, *USERS),
        "storage": ("as it is", "bfloat16", "8bit", "4bit"),
        "rows": ("none", "tensorflow", "lazy", "catch_up"),
    },
    program=program,
    possible=possible,
)
