"""Load the state of Keras optimizers: OptimizerV2 (``get_weights()``), Keras 3 (`variables`).

The functions work on arrays and do not import Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.interop.building import fresh
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.hyperparameters import is_live

__all__ = ["load_variables", "load_weights"]

#: By class: our slots in the order of Keras 3, which lists each group variable by variable.
_SLOTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "SGD": (("momentum",),),
    "Adam": (("m", "v"), ("vhat",)),
    "Adamax": (("m", "v"),),
    "Adagrad": (("accumulator",),),
    "Adadelta": (("accum_grad", "accum_var"),),
    "RMSprop": (("rms",), ("momentum",), ("mg",)),
    "Nadam": (("m", "v"),),
    "Ftrl": (("accumulator", "linear"),),
}


def load_weights(optimizer: RuleOptimizer, weights: Sequence[Any], variables: Any) -> None:
    """Load the weights of an OptimizerV2 into an optimizer.

    Parameters
    ----------
    optimizer : Optimizer
        Of the same class and with the same arguments; it may be new.
    weights : list of array_like
        The result of ``get_weights()``, the step count first.
    variables : list of variables, nested or not
        In the order in which the other optimizer first saw them.

    Raises
    ------
    InvalidArgumentError
        If the number or shapes do not match. Nothing has changed.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.interop import keras
    >>> from tfopt.optimizers import Adam
    >>> opt, w = Adam(), np.ones(2)
    >>> keras.load_weights(opt, [7, [0.5, 0.5], [0.25, 0.25]], [w])
    >>> int(opt.iterations), opt.get_slot(w, "v").numpy()
    (7, array([0.25, 0.25]))
    """
    like, _ = fresh(optimizer, variables)
    like.set_weights(weights)
    optimizer.load_state_dict(like.state_dict(variables), variables)


def load_variables(
    optimizer: RuleOptimizer, keras_variables: Sequence[Any], variables: Any
) -> None:
    """Load the variables of a Keras 3 optimizer into an optimizer.

    Parameters
    ----------
    optimizer : Optimizer
        Of the same class and with the same arguments; it may be new. A learning rate that is a
        number is replaced by the one among the variables; Nadam's `schedule_decay` is set to 1, the
        value built into Keras 3.
    keras_variables : list of variable or array_like
        ``optimizer.variables``, in its order: step count, learning rate (unless it is a schedule),
        slots.
    variables : list of variables, nested or not
        In the order passed to the other optimizer's ``build``.

    Raises
    ------
    InvalidArgumentError
        If the number or shapes do not match. Nothing has changed.
    """
    name = type(optimizer).__name__
    if name not in _SLOTS:
        raise InvalidArgumentError(f"Keras has no counterpart of {name}")
    arrays = [v.numpy() if hasattr(v, "numpy") else np.asarray(v) for v in keras_variables]
    settings = {"schedule_decay": 1.0} if name == "Nadam" else {}
    like, names = fresh(optimizer, variables, **settings)
    slot_names = like.get_slot_names()
    order = [
        like.get_slot(variable, slot)
        for group in _SLOTS[name]
        if group[0] in slot_names
        for variable in names.values()
        for slot in group
    ]
    last = [like.momentum_cache] if name == "Nadam" else []  # type: ignore[attr-defined]
    has_rate = len(arrays) == len(order) + len(last) + 2
    count, *rest = arrays
    if has_rate:
        if not is_live(like.learning_rate):
            like.learning_rate = float(rest[0])
        rest = rest[1:]
    _assign(name, [like.iterations, *order, *last], [count, *rest])
    optimizer.load_state_dict(like.state_dict(variables), variables)


def _assign(name: str, ours: list[Any], theirs: list[np.ndarray]) -> None:
    if len(ours) != len(theirs):
        raise InvalidArgumentError(
            f"{name} has {len(ours)} variables besides the learning rate, but got {len(theirs)}"
        )
    for our, array in zip(ours, theirs, strict=True):
        our.assign(array.astype(our.dtype))
