"""The functions that a build makes from the table: Python and its tools can read them."""

from __future__ import annotations

import ast
import inspect
import typing
from pathlib import Path
from typing import Any

import pytest

import tfopt
from tfopt import raw_ops, sdca_ops, training_ops
from tfopt.rules import FORMS, RULES, Form, Rule

OPTIONS = {
    "indices": None,
    "duplicates": "sequential",
    "grad_scale": 1.0,
    "var_scale": 1.0,
    "check_indices": True,
}
EVERY = [
    *(getattr(training_ops, name) for name in training_ops.__all__),
    *(getattr(raw_ops, name) for name in raw_ops.__all__),
]


@pytest.mark.parametrize("module", [training_ops, raw_ops])
def test_nothing_is_compiled_from_text_at_import(module: Any) -> None:
    path = Path(inspect.getfile(module))
    assert path.parent == Path(tfopt.__file__).parent
    tree = ast.parse(path.read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {*module.__all__} <= defined | imported
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"exec", "eval", "globals"}


@pytest.mark.parametrize("function", EVERY, ids=lambda function: function.__name__)
def test_a_function_has_its_source_and_its_types(function: Any) -> None:
    lines, first = inspect.getsourcelines(function)
    assert lines[0].startswith(f"def {function.__name__}(")
    assert first == function.__code__.co_firstlineno
    hints = typing.get_type_hints(function)
    assert hints.keys() == {*inspect.signature(function).parameters, "return"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_update_is_that_of_its_row(rule: Rule) -> None:
    """It is not, if the table has changed since the build."""
    function = getattr(training_ops, f"apply_{rule.name}")
    parameters = inspect.signature(function).parameters
    options = {**rule.flags, **OPTIONS}
    if rule.absent:
        options["duplicates"] = "sum"
    if rule.reduction == "tensor":  # which takes no indices
        options = {
            k: v for k, v in options.items() if k in (*rule.flags, "grad_scale", "var_scale")
        }
    assert [*parameters] == [*rule.operands, *rule.hypers, *options]
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    required = dict.fromkeys((*rule.operands, *rule.hypers), inspect.Parameter.empty)
    assert defaults == {**required, **options}
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [*rule.operands]
    assert inspect.getdoc(function).splitlines()[0] == rule.summary
    assert all(name in function.__doc__ for name in parameters)


#: Of rules of which states hold steps that rows have missed (``sparse="catch_up"``).
SCALARS = {
    "keras_momentum": "lr momentum",
    "adadelta": "lr rho one_minus_rho epsilon",
    "adam": "alpha beta1 one_minus_beta1 one_minus_beta2 epsilon",
    "adam_with_amsgrad": "alpha beta1 one_minus_beta1 one_minus_beta2 epsilon zero",
    "adamax": "step beta1 one_minus_beta1 beta2 epsilon",
    "rms_prop": "lr rho one_minus_rho momentum epsilon",
    "centered_rms_prop": "lr rho one_minus_rho momentum epsilon",
    "lion": "lr beta1 one_minus_beta1 beta2 one_minus_beta2",
    "yogi": "alpha beta1 one_minus_beta1 one_minus_beta2 epsilon",
    "radam": "alpha beta1 one_minus_beta1 beta2 one_minus_beta2 epsilon rectifier",
    "adopt": "lr beta1 one_minus_beta1 beta2 one_minus_beta2 epsilon limit",
    "ademamix": "root_scale fast_step slow_step beta1 one_minus_beta1 beta2 one_minus_beta2 beta3 "
    "one_minus_beta3 offset",
    "nadam": "lr beta1 one_minus_beta1 beta2 one_minus_beta2 one_minus_beta2_power one_minus_mu "
    "mu_next one_minus_mu_product one_minus_mu_product_next epsilon",
    "keras_rms_prop": "lr rho one_minus_rho epsilon",
    "keras_centered_rms_prop": "lr rho one_minus_rho epsilon",
}


def test_scalars_have_the_order_in_which_states_hold_them() -> None:
    """So the parameters of these steps in rules.pxd keep their order, too."""
    assert {rule.name: " ".join(rule.scalars) for rule in RULES if rule.decays} == SCALARS


def test_scalars_are_named_by_the_step() -> None:
    lion = next(rule for rule in RULES if rule.name == "lion")
    assert lion.scalars["beta1"] == "beta1" and lion.scalars["one_minus_beta2"] == "1 - beta2"
    with pytest.raises(ValueError, match="the step lion takes lr, which is not computed"):
        assert lion._replace(hypers=("beta1", "beta2")).scalars
    with pytest.raises(ValueError, match="the step lion takes no x, y"):
        assert lion._replace(computed={"y": "lr", "x": "lr", "lr": "2 * lr"}).scalars


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_op_is_that_of_its_form(form: Form) -> None:
    parameters = inspect.signature(getattr(raw_ops, form.name)).parameters
    assert [*parameters] == [*form.inputs, "use_locking", *form.rule.flags, "name"]


@pytest.mark.parametrize(
    ("name", "flag"), [("SdcaOptimizer", "adaptative"), ("SdcaOptimizerV2", "adaptive")]
)
def test_the_ops_of_sdca_take_what_it_takes(name: str, flag: str) -> None:
    inputs = [*inspect.signature(sdca_ops.sdca_optimizer).parameters]
    expected = [*inputs[: inputs.index("adaptive")], flag, "name"]
    assert [*inspect.signature(getattr(raw_ops, name)).parameters] == expected
