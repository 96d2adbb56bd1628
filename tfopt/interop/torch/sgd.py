"""Torch's SGD over our kernels."""

from __future__ import annotations

from typing import Any

import torch

from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.optimizers.execution.rule_steps import Update

__all__ = ["SGD"]


class SGD(KernelOptimizer, torch.optim.SGD):
    """``torch.optim.SGD`` over our kernels, with its arguments.

    `foreach` and `fused` are without effect: there is one way. `weight_decay` joins the gradient,
    at the cost of a pass.

    References
    ----------
    Sutskever et al.: On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def _scale(self, group: dict[str, Any], t: int) -> float:
        scale = -1.0 if group["maximize"] else 1.0
        if group["dampening"] and group["momentum"] and t > 1:  # a buffer begins with all of it
            scale *= 1 - float(group["dampening"])
        return scale

    def _update(self, group: dict[str, Any], t: int) -> Update:
        lr = float(group["lr"])
        if not group["momentum"]:
            return Update("gradient_descent", {"alpha": lr}, duplicates="sequential")
        hypers = {"lr": lr, "momentum": group["momentum"]}
        return Update("momentum", hypers, {"use_nesterov": bool(group["nesterov"])})
