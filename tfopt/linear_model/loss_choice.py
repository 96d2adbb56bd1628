"""The choice of a loss and of its parameter, among the options of an estimator."""

from __future__ import annotations

from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.loss_record import PointwiseLoss

__all__ = ["LossChoice"]


class LossChoice:
    """An estimator with the options `loss` and those of `_PARAMETERS`."""

    loss: Any

    #: The losses, by the names of the option.
    _LOSSES: dict[str, PointwiseLoss]
    #: The options that are parameters of a loss, and their defaults.
    _PARAMETERS: dict[str, float | None] = {}

    def _check_loss(self) -> None:
        """Refuse a loss that there is not, and the parameters of others."""
        if self.loss not in self._LOSSES:
            raise ValueError(f"loss must be one of {sorted(self._LOSSES)}, not {self.loss!r}")
        self._parameter()

    @property
    def _phi(self) -> PointwiseLoss:
        """The loss, with the default of its parameter."""
        return self._LOSSES[self.loss]

    def _parameter(self) -> float:
        """Return the parameter of the loss; refuse those of other losses."""
        own = self._phi.option
        for name, default in self._PARAMETERS.items():
            value = getattr(self, name)
            is_given = hasattr(value, "__len__") or value != default  # np.ndim takes longer
            if is_given and (own is None or own.name != name):
                losses = [
                    name_of_loss
                    for name_of_loss, loss in self._LOSSES.items()
                    if loss.option is not None and loss.option.name == name
                ]
                raise InvalidArgumentError(
                    f"{name}={value!r} does not apply to loss={self.loss!r}: it is for loss="
                    + " or ".join(map(repr, losses))
                )
        if own is None:
            return 1.0
        return own.checked(getattr(self, own.name))
