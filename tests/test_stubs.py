"""The type stubs of the generated functions. Run as a script, this writes them anew."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import tfopt
from tfopt.rules import RULES, Rule
from tfopt.sdca_ops import sdca_optimizer

_IMPORTS = """# Written by tests/test_stubs.py from the table.
from typing import Any, SupportsFloat, {typing}

from numpy import signedinteger
from numpy.typing import NDArray

{imports}from tfopt.variable import Variable

__all__ = [
{names}]

_Array: TypeAlias = NDArray[Any] | Variable
"""
_ARRAYS = "_Arrays: TypeAlias = _Array | list[Any] | tuple[Any, ...]\n"


def _header(names: list[str], typing: str = "TypeAlias", imports: str = "") -> str:
    listed = "".join(f'    "{name}",\n' for name in names)
    return _IMPORTS.format(typing=typing, imports=imports, names=listed)


def _function(name: str, arguments: list[str], returned: str) -> str:
    return f"def {name}(\n    " + ",\n    ".join(arguments) + f",\n) -> {returned}: ...\n"


def _rule(rule: Rule) -> str:
    arguments = [
        *(f"{name}: _Arrays" for name in rule.operands),
        "*",
        *(f"{name}: SupportsFloat" for name in rule.hypers),
        *(f"{name}: bool = ..." for name in rule.flags),
        "indices: NDArray[signedinteger] | None = ...",
        "duplicates: str = ...",
        "grad_scale: SupportsFloat = ...",
        "var_scale: SupportsFloat = ...",
        "check_indices: bool = ...",
    ]
    return _function(f"apply_{rule.name}", arguments, "None")


def _raw_op(rule: Rule, prefix: str) -> str:
    """Return one of a rule's forms; those of Ref variables return what they are given."""
    rows, ref = "Sparse" in prefix, "Resource" not in prefix
    types = dict.fromkeys(rule.operands, "_Array") | dict.fromkeys(rule.hypers, "SupportsFloat")
    types["var"] = "_Var" if ref else "_Array"
    arguments = ["*"]
    for name in rule.inputs:
        arguments.append(f"{'grad' if rows and name == rule.grad else name}: {types[name]}")
        if rows and name == rule.grad:
            arguments.append("indices: NDArray[signedinteger]")
    arguments += [f"{name}: bool = ..." for name in ("use_locking", *rule.flags)]
    arguments.append("name: str | None = ...")
    return _function(f"{prefix}Apply{rule.op}", arguments, "_Var" if ref else "None")


def _optimizer(op: str, flag: str) -> str:
    parameters = list(inspect.signature(sdca_optimizer).parameters)
    inputs = parameters[: parameters.index("adaptive")]
    arguments = [f"{name}: Any" for name in inputs]
    options = [f"{flag}: bool = ...", "name: str | None = ..."]
    return _function(op, ["*", *arguments, *options], "SdcaResult")


#: The ops that are not made from the table.
_OTHERS = {
    "ClipByValue": _function(
        "ClipByValue",
        ["*", "t: Any", "clip_value_min: Any", "clip_value_max: Any", "name: str | None = ..."],
        "Any",
    ),
    "L2Loss": _function("L2Loss", ["*", "t: Any", "name: str | None = ..."], "Any"),
    "SdcaFprint": _function("SdcaFprint", ["*", "input: Any", "name: str | None = ..."], "Any"),
    "SdcaOptimizer": _optimizer("SdcaOptimizer", "adaptative"),
    "SdcaOptimizerV2": _optimizer("SdcaOptimizerV2", "adaptive"),
    "SdcaShrinkL1": _function(
        "SdcaShrinkL1",
        ["*", "weights: Any", "l1: Any", "l2: Any", "name: str | None = ..."],
        "None",
    ),
}


def rules_stub() -> str:
    names = sorted(f"apply_{rule.name}" for rule in RULES)
    return _header(names) + _ARRAYS + "\n" + "".join(map(_rule, RULES))


def raw_ops_stub() -> str:
    functions = {
        f"{prefix}Apply{rule.op}": _raw_op(rule, prefix)
        for prefix in ("", "Sparse", "Resource", "ResourceSparse")
        for rule in RULES
        if rule.raw
        and (rule.sparse or "Sparse" not in prefix)
        and (rule.ref or "Resource" in prefix)
    }
    functions |= _OTHERS
    names = sorted(functions)
    own = """Shape: TypeAlias = tuple[int | None, ...]
_Var = TypeVar("_Var", bound=NDArray[Any] | Variable)

"""
    infer = "def infer_shapes(op: str, /, **shapes: Shape | None) -> Shape | None: ...\n"
    imports = "from tfopt.sdca_ops import SdcaResult\n"
    header = _header([*names, "infer_shapes"], "TypeAlias, TypeVar", imports)
    return header + own + "".join(functions[name] for name in names) + infer


PACKAGE = Path(tfopt.__file__).parent
STUBS = {"training_ops.pyi": rules_stub, "raw_ops.pyi": raw_ops_stub}


@pytest.mark.parametrize("name", STUBS)
def test_the_stub_is_that_of_the_table(name: str) -> None:
    assert (PACKAGE / name).read_text() == STUBS[name]()


if __name__ == "__main__":
    for name, stub in STUBS.items():
        (PACKAGE / name).write_text(stub())
