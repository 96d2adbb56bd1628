"""Pages of optimizers and of rules' functions: every keyword in the signature, and the formulas.

Pages that list names have an anchor for each name, so that links outlive its move to another page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autosummary import autosummary_table
from sphinx.util.inspect import stringify_signature

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

#: Of each class, how the rows of docs/formulas.md begin that show its formulas.
ROWS = {
    "SGD": ["`gradient_descent`", "`keras_momentum`"],
    "Adagrad": ["`adagrad_v2`"],
    "Adadelta": ["`adadelta`"],
    "RMSprop": ["`keras_rms_prop`", "`keras_centered_rms_prop`", "`rms_prop`, dense"],
    "Adam": ["`adam`", "`adam_with_amsgrad`", "`keras_adam`"],
    "AdamW": ["`AdamW`", "`adam`"],
    "Adamax": ["`adamax`"],
    "Nadam": ["`nadam`"],
    "Ftrl": ["`ftrl`", "`ftrl_v2`"],
    "Lion": ["`lion`"],
    "Signum": ["`Signum`", "`lion`"],
    "Yogi": ["`yogi`", "`adam`"],
    "RAdam": ["`radam`"],
    "ADOPT": ["`adopt`"],
    "AdEMAMix": ["`ademamix`"],
    "ScheduleFreeSGD": ["`schedule_free_sgd`", "`schedule_free_adam`"],
    "ScheduleFreeAdamW": ["`schedule_free_adam`"],
    "RowwiseAdagrad": ["`rowwise_adagrad`"],
    "RowwiseAdam": ["`rowwise_adam`"],
    "AdamMini": ["`rowwise_adam`"],
    "LAMB": ["`lamb`"],
    "LARS": ["`lars`"],
}
#: Of each rule whose row refers to others, those others. Each has a row that begins with its name.
BASES = {
    "adam_with_amsgrad": ["adam"],
    "yogi": ["adam"],
    "keras_adam": ["adam"],
    "keras_adam_with_amsgrad": ["keras_adam", "adam"],
    "centered_rms_prop": ["rms_prop"],
    "keras_centered_rms_prop": ["keras_rms_prop"],
    "ftrl_v2": ["ftrl"],
}
TABLE = re.findall(
    r"^\| (.*?) \| (.*) \|$", Path(__file__).with_name("formulas.md").read_text(), re.MULTILINE
)


def _restructured(text: str) -> str:
    """Return MyST text as reStructuredText."""

    def changed(found: re.Match[str]) -> str:
        formula, name, code = found.groups()
        if formula:
            return f":math:`{formula}`"
        return f":class:`{name}`" if name else f"``{code}``"

    return re.sub(r"\$(.+?)\$|\{py:class\}`(.+?)`|`(.+?)`", changed, text)


def formulas(starts: list[str]) -> list[str]:
    """Return the rows of docs/formulas.md that begin so, as lines of documentation."""
    rows = []
    for start in starts:
        for place, row in enumerate(TABLE):
            if row[0].startswith(start):
                if row[1].startswith("the same") and TABLE[place - 1] not in rows:
                    rows.append(TABLE[place - 1])
                if row not in rows:
                    rows.append(row)
    if {start for start in starts if not any(row[0].startswith(start) for row in rows)}:
        raise LookupError(f"docs/formulas.md has no row for all of {starts}")
    items = [f"- {_restructured(first)}: {_restructured(formula)}" for first, formula in rows]
    more = "What other libraries compute: :doc:`formulas </formulas>`."
    return ["", ".. rubric:: Formulas", "", *items, "", more, ""]


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Spell out what a class's ``**kwargs`` are, from the constructors that receive them."""
    if what != "class" or not name.startswith("tfopt.optimizers."):
        return None
    parameters = dict(inspect.signature(obj).parameters)
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        return None
    for base in obj.__mro__[1:]:
        if "__init__" not in vars(base) or base is object:
            continue
        for key, parameter in inspect.signature(base).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and key != "lr":
                parameters.setdefault(key, parameter)
    named = [p for p in parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    return stringify_signature(inspect.Signature(named), show_annotation=False), ""


def _docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add the formulas to the documentation of an optimizer, and of a rule's function."""
    package, _, last = name.rpartition(".")
    if what == "class" and package == "tfopt.optimizers" and issubclass(obj, RuleOptimizer):
        lines.extend(formulas(ROWS[last]))
    if package == "tfopt.training_ops" and last.startswith("apply_"):
        rule = last.removeprefix("apply_")
        lines.extend(formulas([f"`{each}`" for each in (rule, *BASES.get(rule, ()))]))


def _anchors(app: Sphinx, document: nodes.document) -> None:
    """Give the entries of lists of names the anchors that the names' descriptions would have."""
    for entry in document.findall(autosummary_table):
        for row in entry.findall(nodes.row):
            for reference in row.findall(pending_xref):
                row["ids"].append(reference["reftarget"])
                break


def _unlinked(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Emphasize names in docstrings that have no page, such as those of arguments."""
    if node.get("refdomain") != "py" or node.get("reftype") != "obj":
        return None
    name = node["reftarget"]
    if name.startswith(("tfopt.", "tfopt_ref.")):
        return None  # so that a warning names it
    return nodes.emphasis("", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _docstring, priority=900)  # after numpydoc
    app.connect("doctree-read", _anchors)
    app.connect("missing-reference", _unlinked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
