"""Torch's SGD on tfopt's kernels."""

from __future__ import annotations

from typing import Any

import torch

from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["SGD"]


class SGD(KernelOptimizer, torch.optim.SGD):
    """``torch.optim.SGD`` on tfopt's kernels, with the same arguments.

    `foreach` and `fused` have no effect. `weight_decay` is added to the gradient in a separate
    pass.

    References
    ----------
    Sutskever et al.: On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def _scale(self, group: dict[str, Any], t: int) -> float:
        scale = -1.0 if group["maximize"] else 1.0
        if group["dampening"] and group["momentum"] and t > 1:  # the first gradient is not dampened
            scale *= 1 - float(group["dampening"])
        return scale

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        lr = float(group["lr"])
        if not group["momentum"]:
            return RuleUpdate("gradient_descent", {"alpha": lr}, duplicates="sequential")
        hypers = {"lr": lr, "momentum": group["momentum"]}
        return RuleUpdate("momentum", hypers, {"use_nesterov": bool(group["nesterov"])})
