"""Torch's adaptive optimizers on tfopt's kernels."""

from __future__ import annotations

import math
from typing import Any

import torch

from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]


class _Adam(KernelOptimizer):
    """The common part of Adam and AdamW."""

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        largest = ["max_exp_avg_sq"] if group["amsgrad"] else []
        return dict.fromkeys(["exp_avg", "exp_avg_sq", *largest], 0.0)

    def _penalty(self, group: dict[str, Any]) -> float:
        return 0.0 if _is_decoupled(group) else super()._penalty(group)

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        power = beta2**t
        hypers = {
            "beta1_power": beta1**t,
            "beta2_power": power,
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": group["eps"]
            * math.sqrt(1 - power),  # our rule adds it before the correction
        }
        rule = "adam_with_amsgrad" if group["amsgrad"] else "adam"
        keep = 1 - lr * group["weight_decay"] if _is_decoupled(group) else 1.0
        if min(beta1, beta2) < 0.5:
            # m + (1 - beta) * (g - m) would lose a small g beside a huge m that is mostly forgotten
            return RuleUpdate(f"keras_{rule}", hypers, keep=keep)
        return RuleUpdate(rule, hypers, {"use_nesterov": False}, keep=keep)


def _is_decoupled(group: dict[str, Any]) -> bool:
    return bool(group["decoupled_weight_decay"])


class Adam(_Adam, torch.optim.Adam):
    """``torch.optim.Adam`` on tfopt's kernels, with the same arguments.

    `foreach` and `fused` have no effect. `weight_decay` is added to the gradient in a separate
    pass, unless `decoupled_weight_decay` is set.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015.
    """


class AdamW(_Adam, torch.optim.AdamW):
    """``torch.optim.AdamW`` on tfopt's kernels, with the same arguments.

    `foreach` and `fused` have no effect. Parameters are multiplied by ``1 - lr * weight_decay`` as
    a dense step reads them; a sparse gradient does not decay them.

    References
    ----------
    Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019.
    """


class Adamax(KernelOptimizer, torch.optim.Adamax):
    """``torch.optim.Adamax`` on tfopt's kernels, with the same arguments.

    `foreach` has no effect. `weight_decay` is added to the gradient in a separate pass. `eps` is
    added to the largest magnitude; torch adds it to the magnitude of each gradient.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        beta1, beta2 = group["betas"]
        hypers = {
            "beta1_power": beta1**t,
            "lr": float(group["lr"]),
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": group["eps"],
        }
        return RuleUpdate("adamax", hypers)


class Adagrad(KernelOptimizer, torch.optim.Adagrad):
    """``torch.optim.Adagrad`` on tfopt's kernels, with the same arguments.

    `foreach` and `fused` have no effect. `weight_decay` is added to the gradient in a separate
    pass.

    References
    ----------
    Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 12, 2011.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        lr = float(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        return RuleUpdate("adagrad_v2", {"lr": lr, "epsilon": group["eps"]}, {"update_slots": True})


class Adadelta(KernelOptimizer, torch.optim.Adadelta):
    """``torch.optim.Adadelta`` on tfopt's kernels, with the same arguments.

    `foreach` has no effect. `weight_decay` is added to the gradient in a separate pass.

    References
    ----------
    Zeiler: ADADELTA: An Adaptive Learning Rate Method, 2012.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        hypers = {"lr": float(group["lr"]), "rho": group["rho"], "epsilon": group["eps"]}
        return RuleUpdate("adadelta", hypers)


class RMSprop(KernelOptimizer, torch.optim.RMSprop):
    """``torch.optim.RMSprop`` on tfopt's kernels, with the same arguments.

    `foreach` has no effect. `weight_decay` is added to the gradient in a separate pass. Sparse
    gradients, which torch does not support here, raise an error only with momentum.

    References
    ----------
    Tieleman, Hinton: Lecture 6.5, 2012.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        buffer = ["momentum_buffer"] if group["momentum"] else []
        mean = ["grad_avg"] if group["centered"] else []
        return dict.fromkeys([*buffer, *mean, "square_avg"], 0.0)

    def _rate(self, group: dict[str, Any]) -> float | None:
        return float(group["lr"]) if group["momentum"] else None

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        rule = "keras_centered_rms_prop" if group["centered"] else "keras_rms_prop"
        hypers = {"rho": group["alpha"], "epsilon": group["eps"]}
        if group["momentum"]:  # the rule's variable is the buffer, which decays and grows
            return RuleUpdate(rule, {"lr": -1.0, **hypers}, keep=group["momentum"])
        return RuleUpdate(rule, {"lr": float(group["lr"]), **hypers})
