"""Pages of optimizers and of rules' functions: every argument, the formulas, and the methods.

Pages that list names have an anchor for each name, so that links outlive its move to another page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from numpydoc.docscrape import NumpyDocString
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autosummary import autosummary_table
from sphinx.util.inspect import stringify_signature

import tfopt.optimizers
from tfopt.optimizers import Adam, Optimizer, OptimizerBase, Wrapper
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.settings import CheckedAttribute

#: Names that pages of other optimizers do not repeat: `Optimizer` and `Wrapper` describe them.
COMMON = {*dir(Optimizer), *dir(Wrapper)}

#: The methods for which one comes to an optimizer's page, in the order in which it lists them.
METHODS = (
    *("step", "apply_gradients", "minimize", "state_dict", "load_state_dict", "save", "load"),
    *("get_slot", "allocate_slots", "convert_storage", "exclude_from_weight_decay"),
    *("catch_up", "flush", "get_config", "from_config"),
)
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
    if not _is_optimizer(what, name):
        return None
    own = inspect.signature(obj).parameters.values()
    if inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in own}:
        return None
    named = [each for key, each in parameters_of(obj).items() if key != "lr"]
    named.sort(key=lambda each: each.kind)
    return stringify_signature(inspect.Signature(named), show_annotation=False), ""


def _is_optimizer(what: str, name: str) -> bool:
    """Return whether this documents an optimizer, and no base class of those."""
    package, _, last = name.rpartition(".")
    bases = ("Optimizer", "OptimizerBase", "Wrapper")
    if what != "class" or package != "tfopt.optimizers" or last in bases:
        return False
    return issubclass(getattr(tfopt.optimizers, last), OptimizerBase)


def _described(cls: type) -> dict[str, tuple[str, list[str]]]:
    """Return the types and descriptions of the arguments that a class's docstring lists."""
    listed = NumpyDocString(inspect.getdoc(cls) or "")["Parameters"]
    return {name: (kind, text) for names, kind, text in listed for name in names.split(", ")}


def _in_words(keywords: str) -> dict[str, str]:
    """Return what a paragraph about ``**kwargs`` says of each argument; it has a line for each."""
    found = {}
    for item in re.split(r"(?<=\.)\n(?=`)", keywords):
        names, _, text = item.partition(": ") if ": " in item else (item, "", item)
        plain = re.match(r"`(\w+)`(, at least 0)?$", names)
        told = re.findall(r"`(\w+)`", names)
        if plain:
            text = text[0].upper() + text[1:]
            found[plain[1]] = f"At least 0. {text}" if plain[2] else text
        elif "must be" in names:
            alone = item.replace(f"`{told[0]}` must", "Must")
            found.update(dict.fromkeys(told, item if len(told) > 1 else alone))
    return found


def _arguments(cls: type, lines: list[str]) -> None:
    """Give each argument of an optimizer an entry, also those that its ``**kwargs`` pass on."""
    base = _described(RuleOptimizer) | _described(Optimizer)
    if "**kwargs" in lines:
        start = lines.index("**kwargs")
        end = start + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        said = _in_words(inspect.cleandoc("\n".join(lines[start + 1 : end])))
        entries = []
        for name, parameter in parameters_of(cls).items():
            if name in _described(cls) or name == "lr" or name not in base:
                continue
            kind, text = base[name]
            if name in said:
                kind, text = re.sub(r"\{.*?\}", "str", kind), said[name].split("\n")
            if "default" not in kind and parameter.default is not None:
                kind = f"{kind}, default {parameter.default!r}".replace("'", '"')
            entries += [f"{name} : {kind}", *(f"    {line}" for line in text)]
        lines[start:end] = entries
    for place in range(len(lines) - 1, -1, -1):
        name, _, kind = lines[place].partition(" : ")
        is_bare = place + 1 < len(lines) and not lines[place + 1].startswith(" ")
        if kind and is_bare and name in base:
            lines[place + 1 : place + 1] = [f"    {line}" for line in base[name][1]]


def _methods(cls: type) -> list[str]:
    """Return the table of an optimizer's methods, with links to where they are described."""
    rows, homes = [], (Optimizer, OptimizerBase, Adam)
    own = [name for name in dir(cls) if name[0] != "_" and name not in {*COMMON, *METHODS}]
    own = [name for name in own if inspect.isfunction(getattr(cls, name))]
    for name in [*own, *METHODS]:
        method = getattr(cls, name, None)
        if method is None:
            continue
        home = next((each for each in homes if hasattr(each, name)), cls)
        summary = (inspect.getdoc(method) or "").split("\n")[0]
        target = f"tfopt.optimizers.{home.__name__}.{name}"
        rows += [f"   * - :meth:`{name} <{target}>`", f"     - {summary}"]
    table = [".. list-table::", "   :class: methods", "   :widths: auto", "", *rows]
    more = "All others are those of :class:`tfopt.optimizers.Optimizer`."
    return ["", ".. rubric:: Methods", "", *table, "", more, ""]


def _entries(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write the arguments of an optimizer's docstring one by one, before numpydoc reads it."""
    if _is_optimizer(what, name):
        _arguments(obj, lines)


def _docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add the methods and formulas of an optimizer, and the formulas of a rule's function."""
    package, _, last = name.rpartition(".")
    if _is_optimizer(what, name):
        added = formulas(ROWS[last]) if issubclass(obj, RuleOptimizer) else []
        rubrics = (place for place, line in enumerate(lines) if line.startswith(".. rubric::"))
        place = next(rubrics, len(lines))
        lines[place:place] = [*_methods(obj), *added]
    if package == "tfopt.training_ops" and last.startswith("apply_"):
        rule = last.removeprefix("apply_")
        lines.extend(formulas([f"`{each}`" for each in (rule, *BASES.get(rule, ()))]))


def _skipped(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out attributes that arguments describe, and methods that every optimizer has."""
    if isinstance(obj, CheckedAttribute):
        return True
    home = getattr(getattr(obj, "fget", obj), "__qualname__", "").partition(".")[0]
    is_common = name in ("get_config", "from_config", "get_slot_names", "capabilities")
    if is_common and home not in ("", "Optimizer", "OptimizerBase"):
        return True
    return None


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
    app.connect("autodoc-process-docstring", _entries, priority=100)  # before numpydoc
    app.connect("autodoc-process-docstring", _docstring, priority=900)  # after numpydoc
    app.connect("autodoc-skip-member", _skipped)
    app.connect("doctree-read", _anchors)
    app.connect("missing-reference", _unlinked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
