"""Values for the arguments of NumPy's functions, by the names of parameters and by kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "ANY", "FITTING", "LEFT_OUT", "LISTS", "METHODS", "OPERANDS", "REQUIRED", "WORDS",
]  # fmt: skip

#: The names of parameters that are operands, and of lists of operands.
OPERANDS = {
    "a", "x", "b", "arr", "x1", "x2", "m", "v", "ary", "values", "val", "p", "array", "A", "f",
    "y", "z", "q", "fp", "start", "stop", "fill_value", "element", "test_elements", "prototype",
    "a_min", "a_max", "min", "max", "weights", "prepend", "append", "to_end", "to_begin", "loc",
    "scale",
}  # fmt: skip
LISTS = {"arrays", "tup", "choicelist", "choices", "keys", "arys", "args", "xi"}
#: Results are not written into operands: `test_numpy_calls` says what is made of these.
LEFT_OUT = {"out", "like", "overwrite_input", "overwrite_b", "copy"}
#: Methods of other names; NumPy sorts arrays themselves, and they have no `ptp`.
METHODS: dict[Any, list[str]] = {
    np.ravel: ["ravel", "flatten"], np.conjugate: ["conj", "conjugate"], np.sort: [], np.ptp: [],
}  # fmt: skip
#: What required parameters are given besides operands.
REQUIRED = {
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
WORDS = {
    "mode": ["clip", "wrap", "raise", "same", "valid", "full", "edge", "reflect", "symmetric",
             "constant", "r", "complete"],
    "order": ["C", "F", "A", "K"], "kind": ["stable", "quicksort", "introselect"],
    "method": ["lower", "higher", "midpoint", "nearest"], "norm": ["ortho", "forward", "backward"],
    "UPLO": ["L", "U", "u"], "casting": ["no", "safe", "unsafe", "same_kind"],
    "indexing": ["ij", "xy"], "ord": ["fro", "nuc"], "side": ["left", "right"],
}  # fmt: skip
#: What any parameter may be given.
ANY: dict[str, list[str]] = {
    "a number": ["0", "1", "2"],
    "a number of NumPy's": ["np.int64(0)", "np.int64(1)", "np.int32(2)", "np.uint8(1)"],
    "a negative number": ["-1", "-2"],
    "a number out of range": ["3", "-4", "7"],
    "a list": ["[0]", "[0, 1]", "[1, 0]", "[]", "[0, 0]"],
    "a tuple": ["(0,)", "(0, 1)", "(-1, 0)", "(1, 1)", "()", "(2, -1)", "(0, 7)"],
    "an array": ["np.array([1, 0])", "np.array(1)", "np.array([0.5, 1.5])"],
    "a tensor": ["()", "(1,)", "(2,)"],  # of whole numbers, of such a shape
    "a boolean": ["True", "False", "np.True_"],
    "booleans": ["[True, False]", "[True, False, True]", "np.array([[True], [False]])"],
    "None": ["None"],
    "a word": ["'bogus'"],
    "a real number": ["0.5", "np.inf", "1e-3", "1j"],
    "a dtype": ["np.float32", "np.complex128", "'int64'", "np.float64"],
}
#: What fits optional parameters.
FITTING = {
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
    "stable": ["True"], "minlength": ["4"], "decimals": ["1"], "out": ["None"],
    "period": ["2.0", "-2.0"], "discont": ["1.0", "-1.0"], "left": ["1.5"], "right": ["-1.5"],
    "fweights": ["[1, 2, 3]", "[2, 1]"], "aweights": ["[0.5, 1.0, 2.0]", "[1, 2]"], "deg": ["True"],
    "rcond": ["0.5", "-1", "1e-3"], "rtol": ["0.5", "-1.0"], "hermitian": ["True"],
    "correction": ["1", "2"], "mean": ["0.5", "np.array(0.5)"], "dx": ["0.5", "-2", "[0.5, 2.0]"],
    "returned": ["True"], "include_initial": ["True"], "full_matrices": ["False"],
    "compute_uv": ["False"], "endpoint": ["False"], "retstep": ["True"], "sparse": ["True"],
    "trans": ["1", "2", "'N'", "'T'", "'C'"], "lower": ["True", "False"],
    "unit_diagonal": ["True"], "check_finite": ["False"], "return_sign": ["True"],
    "loc": ["0.5"], "scale": ["0.5", "2"], "nan": ["1.5"], "posinf": ["1.5"],
    "neginf": ["-1.5"], "default": ["1.5"],
}  # fmt: skip
