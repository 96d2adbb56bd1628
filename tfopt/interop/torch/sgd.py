"""Torch's SGD over our kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.optimizers.steps import Update

__all__ = ["SGD"]


class SGD(KernelOptimizer):
    """``torch.optim.SGD`` over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 0.001
    momentum : float, default 0
    dampening : float, default 0
        0, and no other value.
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    nesterov : bool, default False
    maximize : bool, default False
        At the cost of a pass.
    foreach, fused : bool, optional
        Without effect: there is one way.

    Raises
    ------
    InvalidArgumentError
        If there is dampening.

    References
    ----------
    Sutskever et al.: On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": False,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _check(self, group: dict[str, Any]) -> None:
        if group["dampening"]:
            raise InvalidArgumentError("dampening must be 0")

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        lr = float(group["lr"])
        if not group["momentum"]:
            return Update("gradient_descent", {"alpha": lr}, duplicates="sequential")
        hypers = {"lr": lr, "momentum": group["momentum"]}
        return Update("momentum", hypers, {"use_nesterov": bool(group["nesterov"])})
