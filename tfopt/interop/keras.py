"""The state of Keras optimizers: of OptimizerV2 (``get_weights()``) and of Keras 3 (`variables`).

Nothing here imports Keras: arrays are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.interop.building import fresh
from tfopt.optimizers.base.hyperparameters import is_live
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer

__all__ = ["load_variables", "load_weights"]

#: By class: our slots in the order of Keras 3: those of one group variable after variable.
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
    """Make an optimizer's state the one of an OptimizerV2's weights.

    Parameters
    ----------
    optimizer : Optimizer
        Of the same class and arguments; it may be new.
    weights : list of array_like
        What ``get_weights()`` returned, in its order, the step count first.
    variables : list of variables, nested or not
        In the order in which the other optimizer met them.

    Raises
    ------
    InvalidArgumentError
        If number or shapes do not fit. Nothing has changed.

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
    """Make an optimizer's state the one of a Keras 3 optimizer's variables.

    Parameters
    ----------
    optimizer : Optimizer
        Of the same class and arguments; it may be new. A learning rate that is a number becomes
        the one among the variables; Nadam's `schedule_decay` becomes 1, which Keras 3 has built in.
    keras_variables : list of variable or array_like
        What ``optimizer.variables`` is, in its order: step count, learning rate (unless there is a
        schedule), slots.
    variables : list of variables, nested or not
        In the order of the other optimizer's ``build``.

    Raises
    ------
    InvalidArgumentError
        If number or shapes do not fit. Nothing has changed.
    """
    name = type(optimizer).__name__
    if name not in _SLOTS:
        raise InvalidArgumentError(f"Keras has no counterpart of {name}")
    arrays = [one.numpy() if hasattr(one, "numpy") else np.asarray(one) for one in keras_variables]
    settings = {"schedule_decay": 1.0} if name == "Nadam" else {}
    like, names = fresh(optimizer, variables, **settings)
    own = like.get_slot_names()
    order = [
        like.get_slot(variable, slot)
        for group in _SLOTS[name]
        if group[0] in own
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
            f"{name} has {len(ours)} variables beside the learning rate, not {len(theirs)}"
        )
    for our, array in zip(ours, theirs, strict=True):
        our.assign(array.astype(our.dtype))
