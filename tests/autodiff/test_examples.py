"""The examples of the documentation, in both packages where that does not take long."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "autodiff_examples.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
START = ">>> import numpy as np\n>>> import tfopt\n>>> random = np.random.default_rng(0)\n"
SMALLER = {
    "range(30)": "range(2)", ">= 0.97": ">= 0.85",
    "range(15)": "range(1)", "(known), 78": "(known)[:2560], 10", "0.001 * truth": "2 * truth",
}  # fmt: skip


#: The specification has no optimizers, and nothing for what is computed again.
LACKING = ("optimizers.", "recompute_grad", "tfopt.function")
EACH = [
    pytest.param(package, section, id=f"{section.splitlines()[0]}-{package}")
    for section in SECTIONS
    for package in ("tfopt", "tfopt_ref")
    if package == "tfopt" or not any(name in section for name in LACKING)
]


@pytest.mark.parametrize(("package", "section"), EACH)
def test_section(package: str, section: str) -> None:
    """Each stands for itself; the twin, which is slow, takes fewer steps."""
    text = START + "\n".join(FENCE.findall(section))
    if "sklearn" in text:
        pytest.importorskip("sklearn")
    if package == "tfopt_ref":
        for usual, fewer in SMALLER.items():
            text = text.replace(usual, fewer)
        text = text.replace("tfopt", "tfopt_ref")
    test = doctest.DocTestParser().get_doctest(text, {}, "section", str(PAGE), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0
