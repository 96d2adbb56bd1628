"""A law: a function of NumPy's takes of tensors what it takes of arrays, and has its gradient.

What a call raises is compared in both directions, by its class.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import tfopt.autodiff  # noqa: F401
from laws.called import TRIED
from laws.law import Draw, Law
from tfopt.autodiff import ops
from tfopt.autodiff.vjps.special import SLOPES
from tfopt.autodiff.vjps.without_gradients import PLAIN_FUNCTIONS, TYPE_FUNCTIONS, WRITERS

__all__ = ["FUNCTIONS", "LAW", "REFUSED"]

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
try:
    import scipy.special

    _SPECIAL = {f"scipy.special.{name}": getattr(scipy.special, name) for name in SLOPES
                if hasattr(scipy.special, name)}  # fmt: skip
except ImportError:
    _SPECIAL = {}
#: Every function with a rule, by what is written.
FUNCTIONS: dict[str, Any] = dict(sorted({**_TABLE, **_REDUCED, **_SCANS, **_SPECIAL}.items()))
_PER_PROGRAM = 8
_GROUPS = -(-len(FUNCTIONS) // _PER_PROGRAM)

#: What TensorFlow says is 0 there, and is none.
_NO_SLOPE_AT_0 = ("scipy.special.xlogy", "scipy.special.xlog1py", "np.copysign")
#: Of complex matrices their vectors have a phase that is nobody's.
_WITH_VECTORS = ("np.linalg.svd", "np.linalg.eigh", "np.linalg.qr")
#: Gradients that there are not, and words of what is said then.
REFUSED: dict[str, tuple[str, ...]] = {
    **{name: ("called so", "has no gradient", "no gradient by") for name, f in FUNCTIONS.items()
       if isinstance(f, np.ufunc)},
    **dict.fromkeys(("np.linalg.det", "np.linalg.slogdet", "np.linalg.solve", "np.linalg.cond"),
                    ("Singular",)),
    "np.linalg.svd": ("no gradient of result",),
    **dict.fromkeys(("np.cross", "np.linalg.cross"), ("of two dimensions",)),
    "np.linalg.qr": ("with mode", "Singular"),
    "np.quantile": ("with method",), "np.percentile": ("with method",),
    "np.pad": ("with mode",),
}  # fmt: skip

# ---- what they are given

#: The names of parameters that are operands, and of lists of operands.
_OPERANDS = {
    "a", "x", "b", "arr", "x1", "x2", "m", "v", "ary", "values", "val", "p", "array", "A", "f",
    "y", "z", "q", "fp", "start", "stop", "fill_value", "element", "test_elements", "prototype",
    "a_min", "a_max", "min", "max", "weights", "prepend", "append", "to_end", "to_begin",
}  # fmt: skip
_LISTS = {"arrays", "tup", "choicelist", "choices", "keys", "arys", "args", "xi"}
#: Results are not written into operands: `test_numpy_calls` says what is made of these.
_LEFT_OUT = {"out", "like", "overwrite_input", "copy"}
#: What required parameters are given besides operands.
_REQUIRED = {
    "indices_or_sections": ["2", "[1]", "3", "1", "np.array([1, 2])"],
    "axis": ["0", "-1"], "axis1": ["0"], "axis2": ["-1", "1"],
    "indices": ["[0, 1, 0]", "np.array([[1, -1]])", "0", "[True, False, True]"],
    "condition": ["[True, False]", "[True, False, True]"],
    "condlist": ["[[True, False, True], [True, True, False]]"],
    "obj": ["0", "[0, 1]", "slice(0, 2)"], "shape": ["(2, 3)", "(6,)", "-1", "(3, 3)"],
    "new_shape": ["(2, 3)", "5"], "kth": ["0", "1", "[0, 1]"], "n": ["2", "-1", "0"],
    "xp": ["[0.0, 0.5, 2.0]", "[0.1]", "[-9.0]"], "dtype": ["np.float32", "np.complex128", "int"],
    "source": ["0", "(0, 1)"], "destination": ["-1", "(1, 0)"],
    "shift": ["1", "(1, 2)"], "reps": ["2", "(2, 1)"], "repeats": ["2", "[1, 2]", "[0, 1, 2]"],
    "pad_width": ["1", "(1, 2)", "{0: (1, 0)}", "[[1, 0]]"], "bins": ["[0.0, 0.5, 1.0]"],
    "a": ["[0, 1, 0]"],
}  # fmt: skip
_WORDS = {
    "mode": ["clip", "wrap", "raise", "same", "valid", "full", "edge", "reflect", "symmetric",
             "constant", "r", "complete"],
    "order": ["C", "F", "A", "K"], "kind": ["stable", "quicksort", "introselect"],
    "method": ["lower", "higher", "midpoint", "nearest"], "norm": ["ortho", "forward", "backward"],
    "UPLO": ["L", "U", "u"], "casting": ["no", "safe", "unsafe", "same_kind"],
    "indexing": ["ij", "xy"], "ord": ["fro", "nuc"], "side": ["left", "right"],
}  # fmt: skip
#: What any parameter may be given.
_ANY: dict[str, list[str]] = {
    "a number": ["0", "1", "2"],
    "a number of NumPy's": ["np.int64(0)", "np.int64(1)", "np.int32(2)", "np.uint8(1)"],
    "a negative number": ["-1", "-2"],
    "a number out of range": ["3", "-4", "7"],
    "a list": ["[0]", "[0, 1]", "[1, 0]", "[]", "[0, 0]"],
    "a tuple": ["(0,)", "(0, 1)", "(-1, 0)", "(1, 1)", "()", "(2, -1)", "(0, 7)"],
    "an array": ["np.array([1, 0])", "np.array(1)", "np.array([0.5, 1.5])"],
    "a boolean": ["True", "False", "np.True_"],
    "booleans": ["[True, False]", "[True, False, True]", "np.array([[True], [False]])"],
    "None": ["None"],
    "a word": ["'bogus'"],
    "a real number": ["0.5", "np.inf", "1e-3", "1j"],
    "a dtype": ["np.float32", "np.complex128", "'int64'", "np.float64"],
}
#: What fits optional parameters.
_FITTING = {
    "axis": ["0", "-1", "(0,)", "(0, 1)", "(-1, 0)", "np.int64(0)", "1", "[0, 1]"],
    "axes": ["(0, 1)", "(-1,)", "(1, 0)", "[0]", "1", "np.int64(0)", "([0], [0])", "None"],
    "keepdims": ["True", "np.True_", "1"], "dtype": ["np.float64", "np.complex128", "'float32'"],
    "where": ["[True, False, True]", "np.array([[True], [False]])", "True", "np.False_"],
    "initial": ["1", "0.0", "1.0", "np.float64(-1)", "None"], "ddof": ["1", "0.5", "np.int64(1)"],
    "k": ["1", "-1", "np.int64(1)", "True"], "offset": ["1", "-1", "np.int64(1)"],
    "n": ["2", "3", "4", "np.int64(2)", "0"], "s": ["(2,)", "(2, -1)", "[3, 2]", "(-1,)"],
    "mode": ["'clip'", "'wrap'", "'same'", "'full'", "'valid'", "'edge'", "'reflect'",
             "'symmetric'", "'r'", "'complete'"],
    "norm": ["'ortho'", "'forward'"], "ord": ["1", "2", "np.inf", "-np.inf", "'nuc'", "'fro'", "0",
                                            "3", "-1", "-2", "0.5", "np.int64(1)"],
    "order": ["'F'", "'A'", "'K'", "'C'"], "kind": ["'stable'"], "method": ["'lower'", "'higher'"],
    "UPLO": ["'U'", "'u'"], "upper": ["True", "np.True_", "1"], "indexing": ["'ij'"],
    "bias": ["True"], "rowvar": ["False"], "edge_order": ["2", "np.int64(2)"], "p": ["1", "'fro'"],
    "shape": ["(2, 3)", "3", "np.array([2, 3])"], "start": ["1", "-1"], "num": ["3", "np.int64(4)"],
    "axis1": ["1", "-1"], "axis2": ["0", "2"], "axisa": ["0"], "axisb": ["0"], "axisc": ["0"],
    "stable": ["True"], "minlength": ["4"], "period": ["2.0"], "decimals": ["1"], "out": ["None"],
}  # fmt: skip
_SHAPES = ["(3,)", "(2, 3)", "(3, 3)", "(2, 3, 4)", "()", "(0,)", "(3, 0)", "(0, 4)", "(1,)",
           "(1, 3)", "(2, 3, 3)"]  # fmt: skip
_FACTORS = {
    "functions": [str(k) for k in range(_GROUPS)],
    "argument": ["left out", "one that fits", "two that fit", "all that fit", *_ANY, "all",
                 "one of no such name", "one given twice"],
    "how": ["gradient", "twice", "traced"],
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


class Writer:
    """What writes the calls of a program.

    Parameters
    ----------
    draw : Draw
    random : numpy.random.Generator
    """

    def __init__(self, draw: Draw, random: np.random.Generator) -> None:
        self.levels, self.random = draw.levels, random
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
        return "xyzuvw"[len(self.operands) - 1]

    def needed(self, p: inspect.Parameter) -> str:
        """Return what a parameter without a default is given."""
        if p.name in _LISTS:
            listed = ", ".join(self.operand() for _ in range(self.one_of([1, 2, 2, 3])))
            return listed if p.kind is p.VAR_POSITIONAL else f"[{listed}]"
        if p.name in _OPERANDS:
            return self.operand()
        return str(self.one_of(_REQUIRED[p.name]))

    def further(self, p: inspect.Parameter, level: str) -> str:
        """Return what a parameter with a default is given."""
        if level.endswith(("fits", "fit")):
            if p.name in _FITTING and self.random.random() < 0.9:
                return str(self.one_of(_FITTING[p.name]))
            level = self.one_of(["a number", "a boolean", "a real number", "None"])
        if level == "all":
            level = self.one_of(["a number", "a boolean", "a number of NumPy's", "None"])
        if level == "a word" and p.name in _WORDS and self.random.random() < 0.8:
            return repr(self.one_of(_WORDS[p.name]))
        if p.name in _OPERANDS - {"start"} and (level == "a dtype" or self.random.random() < 0.5):
            return self.operand()
        return "True" if (p.name, level) == ("where", "a dtype") else self.one_of(_ANY[level])

    def call(self, name: str) -> str:
        """Return a call of a function."""
        level, function = self.levels["argument"], FUNCTIONS[name]
        if name == "np.einsum":
            return self.einsum()
        left_out = _LEFT_OUT | ({"where"} if isinstance(function, np.ufunc) else set())
        parameters = [p for p in _parameters(function) if p.name not in left_out]
        given: list[str] = []
        optional, required = [], []
        for p in parameters:
            if p.kind is p.VAR_KEYWORD or (p.kind is p.VAR_POSITIONAL and p.name not in _LISTS):
                continue
            if p.default is p.empty:
                required.append(p)
            else:
                optional.append(p)
        changed = None
        others = [p for p in required if p.name not in _OPERANDS | _LISTS]
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
        elif level in _ANY:
            k = int(self.random.integers(len(others) + len(optional) or 1))
            if k < len(others):
                changed = others[k]
            elif optional:
                chosen = [optional[k - len(others)]]
        for p in required:
            value = self.needed(p)
            if name == "np.linalg.cholesky":
                value = _DEFINITE.replace("x", value)
            if p is changed:
                value = str(self.one_of(_ANY[level]))
            given.append(value)
        if (
            self.levels["second"] == "a number"
            and isinstance(function, np.ufunc)
            and len(given) == 2
            and self.random.random() < 0.5
        ):
            given.reverse()
        for p in chosen:
            value = self.further(p, level)
            given.append(value if p.kind is p.POSITIONAL_ONLY else f"{p.name}={value}")
        if level == "one of no such name":
            given.append("bogus=1")
        named = [p for p in required if p.kind is not p.POSITIONAL_ONLY]
        if level == "one given twice" and named and named[0].kind is not named[0].VAR_POSITIONAL:
            given.append(f"{named[0].name}=1")
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
        if draw.levels["values"] == "special" and "linalg" in name:
            continue  # LAPACK may not come back from infinities
        if "fft" in name and 0 in eval(draw.levels["shape"]):
            continue  # NumPy returns memory that nobody has written
        writer = Writer(draw, np.random.default_rng([draw.seed, place]))
        call = writer.call(name)
        if not writer.operands or "x, [])" in call or "dtype=[]" in call:
            continue  # an empty list is a dtype: that of records without fields
        names = ", ".join("xyzuvw"[: len(writer.operands)])
        distinct = draw.levels["values"] in ("apart", "positive")
        distinct &= draw.levels["layout"] != "broadcast"
        vectors = name in _WITH_VECTORS and "complex" in draw.levels["dtype"]
        smooth = (distinct and not vectors) or isinstance(FUNCTIONS[name], np.ufunc)
        smooth = (
            smooth and (distinct or name not in _NO_SLOPE_AT_0) and "complex" not in call
        )  # whose functions have cuts
        yield (
            f"call = lambda {names}: {call}\n"
            f"call.text = {call!r}\n"
            f"agrees(call, [{', '.join(writer.operands)}], {draw.levels['how']!r}, "
            f"{smooth}, {REFUSED.get(name, ())})\n"
        )


def program(draw: Draw) -> str:
    """Return calls of a few functions, each compared with what NumPy does."""
    imports = ["import numpy as np", "from laws.called import agrees, made"]
    statements = [*_statements(draw)]
    if any("scipy" in statement for statement in statements):
        imports.append("import scipy.special")
    lines = [*imports, "", *statements]
    return "\n".join(lines)


def _not_idle() -> None:
    """Assert that calls gave values, gradients and errors, and that few had no gradient."""
    tried = TRIED
    assert tried["values"] > 1000 < tried["raised"] and tried["gradients"] > 1000, tried
    assert tried["slopes"] > 250, tried
    assert tried["refused"] + tried["not traced"] < tried["gradients"] / 20, tried


LAW = Law("numpy_calls", _FACTORS, program, further=400, not_idle=_not_idle)
