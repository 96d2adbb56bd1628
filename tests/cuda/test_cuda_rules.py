"""The formulas of CUDA are those of rules.pxd, translated."""

from __future__ import annotations

import re

import pytest
from build_files import imported
from host_library import SOURCES

from tfopt.rules import RULES, Rule

TRANSLATOR = imported("translate_rules")


def translated(body: str) -> list[str]:
    """Return the lines of a function's body in C++."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    head = "cdef inline void f(real *x, number *y, real a, bint b) noexcept nogil:\n"
    text = TRANSLATOR.cuda_rules(f"{TRANSLATOR.FIRST}\n{head}{lines}")
    found = re.search(r"\{\n((?:    .*\n)*)\}", text[text.index("BOTH") :])
    assert found
    return [line[4:] for line in found[1].splitlines()]


def test_the_header_is_that_of_the_formulas() -> None:
    text = (SOURCES.parents[1] / "kernels/update/rules.pxd").read_text()
    assert (SOURCES / "rules.h").read_text() == TRANSLATOR.cuda_rules(text)
    defined = re.findall(r"^BOTH void (\w+)\(", (SOURCES / "rules.h").read_text(), re.MULTILINE)
    assert {step for rule in RULES for step in rule.steps.values()} <= {*defined}
    assert {f"{rule.name}_first" for rule in RULES if rule.reduction} <= {*defined}


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("a = a - (a - a)", "a = a - (a - a);"),
        ("a = a - a - a", "a = (a - a) - a;"),
        ("a = a * a + a / a", "a = (a * a) + (a / a);"),
        ("a = -a * a", "a = (-a) * a;"),
        ("a = -x[0] - -a", "a = (-*x) - (-a);"),
        ("x[0] = <real>1 / a", "*x = real(1) / a;"),
        ("a = <number><double>1 * a", "a = number(double(1)) * a;"),
        ("a = -<real>(a + a) * a", "a = (-real(a + a)) * a;"),
        ("a = a if a < a else <real>0", "a = (a < a) ? a : real(0);"),
        ("a = (a if b else a) / a", "a = (b ? a : a) / a;"),
        ("cdef real c = f(a, -a, True)", "const real c = f(a, -a, true);"),
        ("cdef double c", "double c;"),
        ("a = a \\\n    + a     # and more", "a = a + a;"),
        ("return a", "return a;"),
    ],
)
def test_an_expression_keeps_its_order(formula: str, expected: str) -> None:
    assert translated(formula) == [expected]


def test_choices() -> None:
    assert translated("if b:\n    a = a\nelse:\n    f(a)") == [
        "if (b) {", "    a = a;", "} else {", "    f(a);", "}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    [
        "for i in range(3):\n    a = a", "a += a", "a = a and a", "a = x[1]", "a = 0.5",
        "a = a % a", "a = a < a < a", "a = f(a, b=a)", "a = not b", "a = <int>a",
    ],
)  # fmt: skip
def test_what_has_no_translation_is_refused(formula: str) -> None:
    with pytest.raises(ValueError, match=r"^f of rules\.pxd: "):
        translated(formula)


def test_no_function_is_left_out() -> None:
    with pytest.raises(ValueError, match="a function whose first line does not match"):
        TRANSLATOR.cuda_rules(
            f"{TRANSLATOR.FIRST}cdef inline real f(real a) nogil:\n    return a\n"
        )


def summing(expression: str) -> Rule:
    """Return a rule with a number for each row."""
    rule = next(rule for rule in RULES if rule.name == "rowwise_adagrad")
    return rule._replace(reduced={"accum": expression, "step": "lr"})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("accum + squares / size", "double(numbers[0]) + (sums[0] / size)"),
        ("1 - rules.root(lr * l2)", "double(1) - rules::root(double(s[0]) * double(s[2]))"),
        ("lr if (l2 > 0) & (lr > 0) else accum",
         "((double(s[2]) > double(0)) & (double(s[0]) > double(0))) ? double(s[0]) : "
         "double(numbers[0])"),
    ],
)  # fmt: skip
def test_what_follows_from_sums(expression: str, expected: str) -> None:
    """In double precision, whatever the type that is computed in."""
    results = [("numbers[0]", expected), ("further[0]", "double(s[0])")]
    assert TRANSLATOR.reduced(summing(expression)) == results


@pytest.mark.parametrize("expression", ["accum ** 2", "beta * accum", "accum + 0.5"])
def test_what_does_not_follow_from_sums_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"cannot translate|uses beta, which it is not given"):
        TRANSLATOR.reduced(summing(expression))
