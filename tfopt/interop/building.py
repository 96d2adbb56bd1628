"""A temporary optimizer with new state, which then replaces the state of another."""

from __future__ import annotations

from typing import Any

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.key_paths import named
from tfopt.variable import Variable

__all__ = ["fresh"]


def fresh(
    optimizer: RuleOptimizer, variables: Any, **settings: Any
) -> tuple[RuleOptimizer, dict[str, Variable]]:
    """Return a copy of an optimizer with other settings and new slots, and variables by name."""
    like = optimizer._like(optimizer._saved_config())
    for key, value in settings.items():
        setattr(like, key, value)
    names = named(variables)
    like._create_slots(list(names.values()))
    return like, names
