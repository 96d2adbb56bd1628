"""Paragraphs about `**kwargs` that the docstrings of optimizers share."""

from __future__ import annotations

import re

__all__ = ["filled"]

_OPTIONS = """\
`decay`, `clipvalue`, `clipnorm`, `global_clipnorm`, `merge`, `gradient_aggregator`,
`gradient_transformers`, `use_locking`, `compat`, `lr`: as in `Optimizer`."""
_ROUNDING = """\
`stochastic_rounding`: a seed, for which bfloat16 variables and slots round at random."""

#: By the name that stands for it, in braces, on a line of its own.
_SHARED = {
    "options": _OPTIONS,
    "decays": """\
`weight_decay`, at least 0: before a step the weights are multiplied by ``1 - learning_rate
* weight_decay``, except those given to `exclude_from_weight_decay`.""",
    "sparse": """\
`sparse`: what a sparse step does to rows without a gradient. "tensorflow": the same as in
TensorFlow; "lazy": nothing; "catch_up": the same as dense steps with zero gradients, but
deferred until the row has a gradient again, or until `catch_up` or `flush`.""",
    "sparse_rows": """\
`sparse`: what a sparse step does to rows without a gradient. "tensorflow", "lazy":
nothing; "catch_up": the same as dense steps with zero gradients, but deferred until the
row has a gradient again, or until `catch_up` or `flush`.""",
    "elementwise": f"""\
`storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
{_ROUNDING}
`cautious_weight_decay`: whether weights decay only where the step agrees.
{_OPTIONS}""",
    "reduction": f"""\
`stochastic_rounding` must be None and `cautious_weight_decay` False: rules that sum over
elements have neither.
{_OPTIONS}""",
    "schedule_free": f"""\
{_ROUNDING}
`cautious_weight_decay` must be False, because decay is a part of the gradient.
{_OPTIONS}""",
}


def filled(doc: str) -> str:
    """Return a docstring with the paragraphs that its lines in braces name."""
    names = "|".join(_SHARED)
    return re.sub(
        rf"^( *)\{{({names})\}}$",
        lambda found: re.sub("^", found[1], _SHARED[found[2]], flags=re.MULTILINE),
        doc,
        flags=re.MULTILINE,
    )
