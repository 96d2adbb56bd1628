"""Torch's optimizers with a rate for each element, over our kernels."""

from __future__ import annotations

import math
from typing import Any

import torch

from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.optimizers.execution.rule_steps import Update

__all__ = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]


class _Adam(KernelOptimizer):
    """What Adam and AdamW have in common."""

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        largest = ["max_exp_avg_sq"] if group["amsgrad"] else []
        return dict.fromkeys(["exp_avg", "exp_avg_sq", *largest], 0.0)

    def _penalty(self, group: dict[str, Any]) -> float:
        return 0.0 if _is_decoupled(group) else super()._penalty(group)

    def _update(self, group: dict[str, Any], t: int) -> Update:
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        power = beta2**t
        hypers = {
            "beta1_power": beta1**t,
            "beta2_power": power,
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": group["eps"] * math.sqrt(1 - power),  # ours counts before the correction
        }
        rule = "adam_with_amsgrad" if group["amsgrad"] else "adam"
        keep = 1 - lr * group["weight_decay"] if _is_decoupled(group) else 1.0
        if min(beta1, beta2) < 0.5:
            # a mean that forgets fast is not what is left of the one before, which may be huge
            return Update(f"keras_{rule}", hypers, keep=keep)
        return Update(rule, hypers, {"use_nesterov": False}, keep=keep)


def _is_decoupled(group: dict[str, Any]) -> bool:
    return bool(group["decoupled_weight_decay"])


class Adam(_Adam, torch.optim.Adam):
    """``torch.optim.Adam`` over our kernels, with its arguments.

    `foreach` and `fused` are without effect: there is one way. `weight_decay` joins the gradient,
    at the cost of a pass, unless `decoupled_weight_decay`.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015.
    """


class AdamW(_Adam, torch.optim.AdamW):
    """``torch.optim.AdamW`` over our kernels, with its arguments.

    `foreach` and `fused` are without effect: there is one way. Parameters are multiplied by
    ``1 - lr * weight_decay`` as a dense step reads them; rows of a sparse gradient are not.

    References
    ----------
    Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019.
    """


class Adamax(KernelOptimizer, torch.optim.Adamax):
    """``torch.optim.Adamax`` over our kernels, with its arguments.

    `foreach` is without effect: there is one way. `weight_decay` joins the gradient, at the cost of
    a pass. `eps` is added to the largest magnitude; torch adds it to every gradient's.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        beta1, beta2 = group["betas"]
        hypers = {
            "beta1_power": beta1**t,
            "lr": float(group["lr"]),
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": group["eps"],
        }
        return Update("adamax", hypers)


class Adagrad(KernelOptimizer, torch.optim.Adagrad):
    """``torch.optim.Adagrad`` over our kernels, with its arguments.

    `foreach` and `fused` are without effect: there is one way. `weight_decay` joins the gradient,
    at the cost of a pass.

    References
    ----------
    Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 12, 2011.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        lr = float(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        return Update("adagrad_v2", {"lr": lr, "epsilon": group["eps"]}, {"update_slots": True})


class Adadelta(KernelOptimizer, torch.optim.Adadelta):
    """``torch.optim.Adadelta`` over our kernels, with its arguments.

    `foreach` is without effect: there is one way. `weight_decay` joins the gradient, at the cost of
    a pass.

    References
    ----------
    Zeiler: ADADELTA: An Adaptive Learning Rate Method, 2012.
    """

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        hypers = {"lr": float(group["lr"]), "rho": group["rho"], "epsilon": group["eps"]}
        return Update("adadelta", hypers)


class RMSprop(KernelOptimizer, torch.optim.RMSprop):
    """``torch.optim.RMSprop`` over our kernels, with its arguments.

    `foreach` is without effect: there is one way. `weight_decay` joins the gradient, at the cost of
    a pass. Sparse gradients, which torch refuses, are refused with momentum.

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

    def _update(self, group: dict[str, Any], t: int) -> Update:
        rule = "keras_centered_rms_prop" if group["centered"] else "keras_rms_prop"
        hypers = {"rho": group["alpha"], "epsilon": group["eps"]}
        if group["momentum"]:  # the buffer is the rule's variable: it decays, and goes up
            return Update(rule, {"lr": -1.0, **hypers}, keep=group["momentum"])
        return Update(rule, {"lr": float(group["lr"]), **hypers})
