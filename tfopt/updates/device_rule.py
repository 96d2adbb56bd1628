"""Steps by a rule of arrays on a GPU, bound to them the first time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidTypeError
from tfopt.kernels.update.commit import Launch
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate, SparseUpdate

__all__ = ["DeviceRule", "DeviceStep", "unbound"]

Limits = tuple[float | None, float | None, float | None]
_UNLIMITED: Limits = (None, None, None)


class DeviceStep:
    """A rule's step of the same arrays on one GPU.

    Parameters
    ----------
    parts : sequence of DenseBucket and SparseUpdate
    mode : str
        How rows are stepped, as `sparse` of an optimizer.
    limits : tuple
        Of values, of norms and of the global norm.
    """

    def __init__(
        self,
        parts: Sequence[DenseBucket | SparseUpdate],
        mode: str = "tensorflow",
        limits: Limits = _UNLIMITED,
    ) -> None:
        self._parts, self._mode, self._limits = parts, mode, limits
        part = parts[0]
        arrays = part.operands[0] if isinstance(part, DenseBucket) else part.arrays
        self._backend = backend_of(arrays)
        self._launch: Launch | None = None
        self._rule, self._scale = "", 1.0

    def takes(self, grads: list[Any]) -> bool:
        """Whether the step is bound, and can be taken again with these gradients."""
        return self._launch is not None and self._launch.takes(grads)

    def launch(self, update: RuleUpdate, scale: float, grads: list[Any]) -> Launch | list[Any]:
        """Check a step; return its launch, or its updates if the arrays cannot be bound.

        If `takes` has just accepted the gradients, little is left to check.
        """
        launch = self._launch
        if (
            launch is not None
            and (launch.accepted or launch.takes(grads))
            and update.rule == self._rule
            and self._prepared(launch, update, scale, grads)
        ):
            return launch
        steps = [part.step(update, self._mode, scale) for part in self._parts]
        updates: list[Any] = self._backend.checked_updates(self._parts, steps, grads)
        if any(part.constrained for part in self._parts):
            return updates
        launch = self._backend.launch_of(self._parts, updates, grads, self._limits)
        if launch is None or not launch.takes(grads):
            return updates
        self._launch, self._rule, self._scale = launch, update.rule, 1.0
        return launch if self._prepared(launch, update, scale, grads) else updates

    def write(self, update: RuleUpdate, scale: float, grads: list[Any], name: str) -> Launch:
        """Check a step and return its launch; `name` is that of a variable, in an error.

        Raises
        ------
        InvalidTypeError
            If the arrays cannot be bound.
        """
        self.takes(grads)
        launch = DeviceStep.launch(self, update, scale, grads)
        if not isinstance(launch, Launch):
            raise unbound(name)
        return launch

    def _prepared(self, launch: Launch, update: RuleUpdate, scale: float, grads: list[Any]) -> bool:
        if scale != self._scale and self._limits != _UNLIMITED:
            launch.clip(self._backend.limits_of(self._limits, scale, self._own(grads)))
            self._scale = scale
        return launch.prepare(update, scale)

    def run(self, updates: list[Any], scale: float) -> None:
        """Queue the updates of arrays that cannot be bound."""
        self._backend.run_clipped(updates, *self._limits, scale)

    def finite(self, updates: Launch | list[Any], grads: list[Any]) -> bool:
        """Wait for the gradients of what `launch` has returned; whether all of them are finite."""
        if isinstance(updates, Launch) and not updates.shares:
            return updates.finite()
        finite: bool = self._backend.are_finite(self._own(grads))
        return finite

    def _own(self, grads: list[Any]) -> list[Any]:
        return [grads[place] for part in self._parts for place in part.places]

    def release(self) -> None:
        """Release the gradients."""
        if self._launch is not None:
            self._launch.release()


class DeviceRule(DeviceStep):
    """A rule's step of the same arrays on one GPU, whichever rule it is.

    Parameters
    ----------
    operands : tuple of list
        The variables, their first slots, and so on.
    """

    def __init__(self, operands: tuple[list[Any], ...]) -> None:
        places = list(range(len(operands[0])))
        super().__init__([DenseBucket(operands, places, [], None, True, False)])

    def launch(self, update: RuleUpdate, scale: float, grads: list[Any]) -> Launch | list[Any]:
        """Check a step; return its launch, or its updates if the arrays cannot be bound."""
        self.takes(grads)
        return super().launch(update, scale, grads)


def unbound(name: str) -> InvalidTypeError:
    """Return the error about arrays that cannot be bound; `name` is that of a variable."""
    return InvalidTypeError(
        f"{name} is on a GPU, where all arrays that are computed together must be contiguous, on "
        "one GPU and on few streams, and tell where they are without requiring a gradient"
    )
