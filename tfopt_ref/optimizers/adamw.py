"""AdamW."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.adam import Adam

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        amsgrad: bool = False,
        name: str = "AdamW",
        **kwargs: Any,
    ) -> None:
        settings = beta_1, beta_2, epsilon, amsgrad, name
        super().__init__(learning_rate, *settings, weight_decay=weight_decay, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight_decay": self.weight_decay}
