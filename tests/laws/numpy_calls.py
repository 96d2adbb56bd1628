"""A NumPy function accepts the same arguments for tensors as for arrays, and has its gradient.

What a call raises is compared in both directions, by its class.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import tfopt
from laws.called import TRIED
from laws.law import Draw, Law
from laws.numpy_arguments import (
    ANY,
    FITTING,
    LEFT_OUT,
    LISTS,
    METHODS,
    OPERANDS,
    REQUIRED,
    WORDS,
)  # fmt: skip
from tfopt.autodiff import ops
from tfopt.autodiff.vjps.special import SLOPES
from tfopt.autodiff.vjps.without_gradients import PLAIN_FUNCTIONS, TYPE_FUNCTIONS, WRITERS
from tfopt.core.engine import CUT

__all__ = ["FUNCTIONS", "HEAD", "LAW", "REFUSED", "SCIPYS", "WHOLE", "ordinary"]

# ---- what is called, from the package's tables


def spelled(function: Any) -> str:
    """Return how a function is written."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"np.{owner.__name__}.{function.__name__}"
    module = str(getattr(function, "__module__", None) or "numpy")
    return f"{module.replace('numpy', 'np', 1)}.{function.__name__}"


def of_numpy(function: Any) -> bool:
    try:
        return eval(spelled(function), {"np": np}) is function
    except AttributeError:
        return False


#: Of these there is nothing to compare: what they write, print or ask.
_OTHERS = {*PLAIN_FUNCTIONS, *TYPE_FUNCTIONS, *WRITERS, np.empty_like, np.apply_along_axis,
           np.piecewise}  # fmt: skip
_TABLE = {spelled(f): f for f in (*ops.UFUNCS, *ops.FUNCTIONS) if f not in _OTHERS and of_numpy(f)}
_REDUCED = {f"np.{f.__name__}.reduce": f.reduce for f in ops.REDUCTIONS}
_SCANS = {f"np.{f.__name__}.accumulate": f.accumulate for f in ops.ACCUMULATIONS}
_SEGMENTS = {f"np.{f.__name__}.reduceat": f.reduceat for f in ops.SEGMENTS}
try:
    import scipy.special

    _SPECIAL = {f"scipy.special.{name}": getattr(scipy.special, name) for name in SLOPES
                if hasattr(scipy.special, name)}  # fmt: skip
except ImportError:
    _SPECIAL = {}
#: Functions that SciPy has under other names.
SCIPYS = {
    f"tfopt.scipy.{module}.{name}": getattr(getattr(tfopt.scipy, module), name)
    for module in ("special", "linalg")
    for name in getattr(tfopt.scipy, module).__all__
}
SCIPYS["tfopt.scipy.stats.norm.logpdf"] = tfopt.scipy.stats.norm.logpdf
#: Every function with a rule, by what is written.
FUNCTIONS: dict[str, Any] = dict(
    sorted({**_TABLE, **_REDUCED, **_SCANS, **_SEGMENTS, **_SPECIAL, **SCIPYS}.items())
)
_PER_PROGRAM = 8
_GROUPS = -(-len(FUNCTIONS) // _PER_PROGRAM)

#: What TensorFlow says is 0 there, and is none.
_NO_SLOPE_AT_0 = (
    "scipy.special.xlogy", "scipy.special.xlog1py", "scipy.special.kl_div", "scipy.special.betaln",
    "np.copysign", "np.remainder", "np.fmod",
)  # fmt: skip
#: Functions of complex numbers have cuts, and float32 has no differences.
_NOT_SMOOTH = ("complex", "1j", "float32")
#: Of complex matrices their vectors have a phase that is nobody's.
_WITH_VECTORS = ("np.linalg.svd", "np.linalg.eigh", "np.linalg.qr")
#: Missing gradients, and words of their errors.
REFUSED: dict[str, tuple[str, ...]] = {
    **{name: ("with these arguments", "has no gradient", "no gradient by")
       for name, f in FUNCTIONS.items() if isinstance(f, np.ufunc)},
    **dict.fromkeys(("np.linalg.det", "np.linalg.slogdet", "np.linalg.solve", "np.linalg.cond"),
                    ("Singular",)),
    "np.linalg.svd": ("no gradient of result",), "np.linalg.lstsq": ("an rcond of several",),
    **dict.fromkeys(("np.cross", "np.linalg.cross"), ("of two dimensions",)),
    "np.linalg.qr": ("with mode", "Singular"),
    "np.quantile": ("with method",), "np.percentile": ("with method",),
    "np.pad": ("with mode",),
    "tfopt.scipy.linalg.solve_triangular": ("Singular", "singular", "of several numbers"),
    "tfopt.scipy.stats.norm.logpdf": ("with None",),
    "tfopt.scipy.linalg.cho_solve": ("Singular", "singular"),
}  # fmt: skip

_SHAPES = ["(3,)", "(2, 3)", "(3, 3)", "(2, 3, 4)", "()", "(0,)", "(3, 0)", "(0, 4)", "(1,)",
           "(1, 3)", "(2, 3, 3)"]  # fmt: skip
_FACTORS = {
    "functions": [str(k) for k in range(_GROUPS)],
    "argument": ["left out", "one that fits", "two that fit", "all that fit", *ANY, "all",
                 "one of no such name", "one given twice"],
    "how": ["gradient", "twice", "traced"],
    "spelling": ["as usual", "all by position", "all by name", "as a method"],
    "dtype": ["float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64",
              "int32", "uint8", "bool"],
    "shape": _SHAPES,
    "layout": ["C", "F", "strided", "reversed", "broadcast"],
    "values": ["apart", "positive", "tiny", "ties", "zeros", "special"],
    "second": ["the same", "a length of 1", "a scalar", "one less axis", "transposed",
               "of other dtype", "complex", "a number"],
}  # fmt: skip


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


#: A positive definite matrix, if x is one, and other numbers above its diagonal.
_DEFINITE = (
    "np.matmul(x, np.conj(np.swapaxes(x, -1, -2))) + np.triu(np.full((x.shape[-2],) * 2, 0.3), 1) "
    "+ 3 * np.eye(x.shape[-2])"
)
#: A matrix without small numbers on its diagonal, if x is one.
_REGULAR = "x + 3 * np.eye(x.shape[-1])"


class Writer:
    """What writes the calls of a program.

    Parameters
    ----------
    levels : dict
        Of the factors.
    random : numpy.random.Generator
    """

    def __init__(self, levels: Any, random: np.random.Generator) -> None:
        self.levels, self.random = levels, random
        self.operands: list[str] = []

    def one_of(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def operand(self) -> str:
        """Return the name of a further operand."""
        levels = self.levels
        dtype, shape = levels["dtype"], eval(levels["shape"])
        second = levels["second"] if self.operands else ""
        if second == "a number":
            return str(self.one_of(["0.5", "2", "-1.5", "True", "1j"]))
        if second == "complex":
            dtype = "complex128"
        if second == "of other dtype":
            dtype = self.one_of(_FACTORS["dtype"])
        shape = {
            "a scalar": (),
            "a length of 1": (1, *shape[1:])[: len(shape)],
            "one less axis": shape[1:],
            "transposed": shape[::-1],
        }.get(second, shape)
        seed = int(self.random.integers(1000))
        self.operands.append(
            f"made({dtype!r}, {shape}, {levels['layout']!r}, {levels['values']!r}, {seed})"
        )
        return "xyzuvwrst"[len(self.operands) - 1]

    def any_of(self, level: str) -> str:
        """Return what any parameter may be given."""
        made = str(self.one_of(ANY[level]))
        if level != "a tensor":
            return made
        seed = int(self.random.integers(1000))
        self.operands.append(f"made('int64', {made}, 'C', 'ties', {seed})")
        return "xyzuvwrst"[len(self.operands) - 1]

    def needed(self, p: inspect.Parameter) -> str:
        """Return what a parameter without a default is given."""
        if p.name in LISTS:
            listed = ", ".join(self.operand() for _ in range(self.one_of([1, 2, 2, 3])))
            return listed if p.kind is p.VAR_POSITIONAL else f"[{listed}]"
        if p.name in OPERANDS:
            return self.operand()
        if p.name == "c_and_lower":
            root = _REGULAR.replace("x", self.operand())
            return f"({root}, {self.one_of(['True', 'False'])})"
        return str(self.one_of(REQUIRED[p.name]))

    def further(self, p: inspect.Parameter, level: str) -> str:
        """Return what a parameter with a default is given."""
        if level.endswith(("fits", "fit")):
            if p.name in FITTING and self.random.random() < 0.9:
                return str(self.one_of(FITTING[p.name]))
            level = self.one_of(["a number", "a boolean", "a real number", "None"])
        if level == "all":
            level = self.one_of(["a number", "a boolean", "a number of NumPy's", "None"])
        if level == "a word" and p.name in WORDS and self.random.random() < 0.8:
            return repr(self.one_of(WORDS[p.name]))
        if p.name in OPERANDS - {"start"} and (level == "a dtype" or self.random.random() < 0.5):
            return self.operand()
        return "True" if p.name in ("where", "mean") and level == "a dtype" else self.any_of(level)

    def call(self, name: str) -> str:
        """Return a call of a function."""
        level, function = self.levels["argument"], FUNCTIONS[name]
        if name == "np.einsum":
            return self.einsum()
        left_out = LEFT_OUT | ({"where"} if isinstance(function, np.ufunc) else set())
        parameters = [p for p in _parameters(function) if p.name not in left_out]
        given: list[str] = []
        optional, required = [], []
        for p in parameters:
            if p.kind is p.VAR_KEYWORD or (p.kind is p.VAR_POSITIONAL and p.name not in LISTS):
                continue
            if p.default is p.empty:
                required.append(p)
            else:
                optional.append(p)
        changed = None
        others = [p for p in required if p.name not in OPERANDS | LISTS]
        chosen: list[inspect.Parameter] = []
        if level.startswith("all"):
            chosen = optional
        elif level in ("one that fits", "two that fit") and optional:
            count = min(len(optional), 1 if level == "one that fits" else 2)
            picked = sorted(self.random.permutation(len(optional))[:count].tolist())
            chosen = [optional[k] for k in picked]
            along = [p for p in optional if p.name in ("axis", "s", "n") and p not in chosen]
            if along and self.random.random() < 0.5:
                chosen[0] = along[0]  # as most calls have one
        elif level in ANY:
            k = int(self.random.integers(len(others) + len(optional) or 1))
            if k < len(others):
                changed = others[k]
            elif optional:
                chosen = [optional[k - len(others)]]
        for p in required:
            value = self.needed(p)
            if name == "np.linalg.cholesky":
                value = _DEFINITE.replace("x", value)
            if name.endswith("solve_triangular") and p.name == "a":
                value = _REGULAR.replace("x", value)
            if p is changed:
                value = self.any_of(level)
            given.append(value)
        if (
            self.levels["second"] == "a number"
            and isinstance(function, np.ufunc)
            and len(given) == 2
            and self.random.random() < 0.5
        ):
            given.reverse()
        values = dict(zip(required, given, strict=True))
        values.update((p, self.further(p, level)) for p in chosen)
        given = self.spelled(_parameters(function), values)
        if level == "one of no such name":
            given.append("bogus=1")
        named = [p for p in required if p.kind is not p.POSITIONAL_ONLY]
        if level == "one given twice" and named and named[0].kind is not named[0].VAR_POSITIONAL:
            given.append(f"**{{{named[0].name!r}: 1}}")
        return self.owned(function, name, given)

    def spelled(self, parameters: list[inspect.Parameter], values: dict[Any, str]) -> list[str]:
        """Return arguments as they are written: by position or by name."""
        spelling, made = self.levels["spelling"], []
        last = max((k for k, p in enumerate(parameters) if p in values), default=-1)
        for k, p in enumerate(parameters):
            positional = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            if spelling == "all by position" and positional and k <= last:
                unset = "np._NoValue" if p.default is np._NoValue else repr(p.default)
                unset = "None" if p.name == "out" else unset
                made.append(values.get(p, unset))
            elif p in values and (p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) or (
                p.default is p.empty and positional and spelling != "all by name"
            )):  # fmt: skip
                made.append(values[p])
            elif p in values:
                made.append(f"{p.name}={values[p]}")
        return made

    def owned(self, function: Any, name: str, given: list[str]) -> str:
        """Return a call: of a method, if this is how it is spelled."""
        methods = [m for m in METHODS.get(function, [function.__name__]) if m in ops.METHODS]
        if self.levels["spelling"] == "as a method" and methods:
            place = given.index("x") if "x" in given else 0
            if given[place : place + 1] == ["x"]:
                rest = ", ".join([*given[:place], *given[place + 1 :]])
                return f"x.{self.one_of(methods)}({rest})"
        return f"{name}({', '.join(given)})"

    def einsum(self) -> str:
        ndim = len(eval(self.levels["shape"]))
        word = "ijk"[:ndim]
        x, y = self.operand(), self.operand()
        other = {
            "transposed": word[::-1],
            "one less axis": word[1:],
            "a scalar": "",
            "a number": "",
        }
        two = other.get(self.levels["second"], word)
        out = self.one_of(["->" + word, "->", "", "->" + word[::-1], "->" + word[:1]])
        subscripts = self.one_of([f"{word},{two}{out}", f"...,...{out and '->...'}",
                                  f"...{word[-1:]},...{two[-1:]}->..."])  # fmt: skip
        further = ", optimize=True" if self.levels["argument"] == "a boolean" else ""
        return f"np.einsum({subscripts!r}, {x}, {y}{further})"


def _names(group: str) -> list[str]:
    return [*FUNCTIONS][int(group) :: _GROUPS]


def _statements(draw: Draw) -> Iterator[str]:
    for place, name in enumerate(np.repeat(_names(draw.levels["functions"]), 2).tolist()):
        made = statement(draw.levels, name, [draw.seed, place])
        if made:
            yield made


def statement(levels: Any, name: str, seed: Any) -> str:
    """Return a call of a function, and what compares it; nothing if it is not to be called so."""
    if levels["values"] == "special" and "linalg" in name:
        return ""  # LAPACK may not come back from infinities
    if "fft" in name and 0 in eval(levels["shape"]):
        return ""  # NumPy returns memory that nobody has written
    writer = Writer(levels, np.random.default_rng(seed))
    call = writer.call(name)
    if not writer.operands or call.endswith("[])") or "dtype=[]" in call:
        return ""  # an empty list is a dtype: that of records without fields
    names = ", ".join("xyzuvwrst"[: len(writer.operands)])
    distinct = levels["values"] in ("apart", "positive")
    distinct &= levels["layout"] != "broadcast"
    vectors = name in _WITH_VECTORS and "complex" in levels["dtype"]
    smooth = (distinct and not vectors) or isinstance(FUNCTIONS[name], np.ufunc)
    smooth &= distinct or name not in _NO_SLOPE_AT_0
    smooth &= not any(word in call for word in _NOT_SMOOTH)
    smooth &= not ("complex" in levels["dtype"] and "float" in call)
    if name == "np.corrcoef":  # rows in equal steps are correlated by 1, where it is clipped
        smooth &= levels["values"] == "positive"
    if name in ("np.ravel", "np.reshape"):  # which may ask for the order in memory
        smooth &= levels["layout"] == "C"
    return (
        f"call = lambda {names}: {call}\n"
        f"call.text = {call!r}\n"
        f"agrees(call, [{', '.join(writer.operands)}], {levels['how']!r}, "
        f"{smooth}, {REFUSED.get(name, ())}, {name!r})\n"
    )


#: Levels that most functions take.
_ORDINARY: dict[str, list[str]] = {
    "argument": ["left out", "one that fits", "two that fit"],
    "spelling": _FACTORS["spelling"], "dtype": ["float64"], "values": ["apart", "positive"],
    "shape": ["(3,)", "(2, 3)", "(3, 3)", "(2, 3, 3)"], "layout": ["C", "F", "strided"],
    "second": ["the same", "transposed", "one less axis"],
}  # fmt: skip
#: Functions of whole numbers alone.
WHOLE = {"np.bitwise_and", "np.bitwise_or", "np.bitwise_xor", "np.gcd", "np.lcm", "np.invert",
         "np.left_shift", "np.right_shift"}  # fmt: skip


#: What fits these alone: the first operand of whole numbers, the second one not, or a number.
_ORDINARY_BUT: dict[str, dict[str, str]] = {
    **{name: {"dtype": "int64", "values": "positive"} for name in WHOLE},
    **{name: {"dtype": "int64", "values": "positive", "second": "of other dtype"}
       for name in ("np.choose", "np.bincount")},
    "np.ldexp": {"second": "of other dtype"},
    **{f"scipy.special.{name}": {"second": "a number"} for name, slopes in SLOPES.items()
       if slopes[0] is CUT},
}  # fmt: skip


def ordinary(name: str, how: str, seed: int) -> str:
    """Return a statement about a function with arguments that are likely to fit."""
    random = np.random.default_rng([seed, len(name), *map(ord, name)])
    levels = {k: each[int(random.integers(len(each)))] for k, each in _ORDINARY.items()}
    levels |= {"how": how, **_ORDINARY_BUT.get(name, {})}
    return statement(levels, name, int(random.integers(10**9)))


HEAD = "import numpy as np\nimport tfopt\nfrom laws.called import agrees, made"


def program(draw: Draw) -> str:
    """Return calls of a few functions, each compared with what NumPy does."""
    statements = [*_statements(draw)]
    further = ["import scipy.special"] if any("scipy" in each for each in statements) else []
    return "\n".join([HEAD, *further, "", *statements])


def _not_idle() -> None:
    """Assert that calls gave values, gradients and errors, and that few had no gradient."""
    tried = TRIED
    assert tried["values"] > 1000 < tried["raised"] and tried["gradients"] > 1000, tried
    assert tried["slopes"] > 250, tried
    assert tried["refused"] + tried["not traced"] < tried["gradients"] / 20, tried


LAW = Law("numpy_calls", _FACTORS, program, further=400, not_idle=_not_idle)
