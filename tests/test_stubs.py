"""The type stubs of the generated functions. Run as a script, this writes them anew."""

from __future__ import annotations

from pathlib import Path

import tfopt
from tfopt.rules import RULES, Rule


def _function(rule: Rule) -> str:
    arguments = [
        *(f"{name}: _Array" for name in rule.operands),
        "*",
        *(f"{name}: SupportsFloat" for name in rule.hypers),
        *(f"{name}: bool = ..." for name in rule.flags),
        "indices: NDArray[signedinteger] | None = ...",
        "grad_scale: SupportsFloat = ...",
    ]
    return f"def apply_{rule.name}(\n    " + ",\n    ".join(arguments) + ",\n) -> None: ...\n"


def stub() -> str:
    names = sorted(f"apply_{rule.name}" for rule in RULES)
    listed = "[\n" + "".join(f'    "{name}",\n' for name in names) + "]"
    header = f"""# Written by tests/test_stubs.py from the table.
from typing import Any, SupportsFloat, TypeAlias

from numpy import signedinteger
from numpy.typing import NDArray

from tfopt.variable import Variable

__all__ = {listed}

_Array: TypeAlias = NDArray[Any] | Variable

"""
    return header + "".join(map(_function, RULES))


STUB = Path(tfopt.__file__).with_name("training_ops.pyi")


def test_the_stub_is_that_of_the_table() -> None:
    assert STUB.read_text() == stub()


if __name__ == "__main__":
    STUB.write_text(stub())
