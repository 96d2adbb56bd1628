"""Torch's optimizers with a rate for each element, over our kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from tfopt.errors import InvalidArgumentError
from tfopt.interop.torch.optimizer import KernelOptimizer
from tfopt.optimizers.steps import Update

__all__ = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]


class Adam(KernelOptimizer):
    """``torch.optim.Adam`` over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 0.001
    betas : tuple of float, default (0.9, 0.999)
    eps : float, default 1e-8
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    amsgrad : bool, default False
    maximize : bool, default False
        At the cost of a pass.
    foreach, fused : bool, optional
        Without effect: there is one way.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015.
    """

    _decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": False,
            "differentiable": False,
            "fused": fused,
            "decoupled_weight_decay": self._decoupled,
        }
        super().__init__(params, defaults)

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        largest = ["max_exp_avg_sq"] if group["amsgrad"] else []
        return dict.fromkeys(["exp_avg", "exp_avg_sq", *largest], 0.0)

    def _update(self, group: dict[str, Any], t: int) -> Update:
        beta1, beta2 = group["betas"]
        power = beta2**t
        hypers = {
            "beta1_power": beta1**t,
            "beta2_power": power,
            "lr": float(group["lr"]),
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": group["eps"] * math.sqrt(1 - power),  # ours counts before the correction
        }
        rule = "adam_with_amsgrad" if group["amsgrad"] else "adam"
        return Update(rule, hypers, {"use_nesterov": False})


class AdamW(Adam):
    """``torch.optim.AdamW`` over our kernels.

    Parameters
    ----------
    params, lr, betas, eps, amsgrad, maximize, foreach, fused
        As in `Adam`.
    weight_decay : float, default 0.01
        Parameters are multiplied by ``1 - lr * weight_decay`` before a dense step; rows of a sparse
        gradient are not.

    References
    ----------
    Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019.
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **kwargs)

    def _penalty(self, group: dict[str, Any]) -> float:
        return 0.0

    def _before(self, group: dict[str, Any], targets: list[Any]) -> Callable[[], object]:
        keep = 1 - float(group["lr"]) * group["weight_decay"]
        return partial(_multiply, targets, keep)


@torch.no_grad()
def _multiply(tensors: list[Any], factor: float) -> None:
    torch._foreach_mul_(tensors, factor)


class Adamax(KernelOptimizer):
    """``torch.optim.Adamax`` over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 0.002
    betas : tuple of float, default (0.9, 0.999)
    eps : float, default 1e-8
        Added to the largest magnitude; torch adds it to every gradient's.
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    maximize : bool, default False
        At the cost of a pass.
    foreach : bool, optional
        Without effect.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": False,
            "capturable": False,
        }
        super().__init__(params, defaults)

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


class Adagrad(KernelOptimizer):
    """``torch.optim.Adagrad`` over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 0.01
    lr_decay : float, default 0
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    initial_accumulator_value : float, default 0
    eps : float, default 1e-10
    foreach, fused : bool, optional
        Without effect.
    maximize : bool, default False
        At the cost of a pass.

    References
    ----------
    Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 12, 2011.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": False,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        lr = float(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        return Update("adagrad_v2", {"lr": lr, "epsilon": group["eps"]}, {"update_slots": True})


class Adadelta(KernelOptimizer):
    """``torch.optim.Adadelta`` over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 1.0
    rho : float, default 0.9
    eps : float, default 1e-6
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    foreach : bool, optional
        Without effect.
    maximize : bool, default False
        At the cost of a pass.

    References
    ----------
    Zeiler: ADADELTA: An Adaptive Learning Rate Method, 2012.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": False,
            "foreach": foreach,
            "differentiable": False,
        }
        super().__init__(params, defaults)

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        hypers = {"lr": float(group["lr"]), "rho": group["rho"], "epsilon": group["eps"]}
        return Update("adadelta", hypers)


class RMSprop(KernelOptimizer):
    """``torch.optim.RMSprop``, without momentum, over our kernels.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts with settings.
    lr : float, default 0.01
    alpha : float, default 0.99
    eps : float, default 1e-8
    weight_decay : float, default 0
        Joins the gradient, at the cost of a pass.
    momentum : float, default 0
        0, and no other value.
    centered : bool, default False
    foreach : bool, optional
        Without effect.
    maximize : bool, default False
        At the cost of a pass.

    Raises
    ------
    InvalidArgumentError
        If there is momentum: our rule has the learning rate in its buffer.

    References
    ----------
    Tieleman, Hinton: Lecture 6.5, 2012.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": False,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": False,
        }
        super().__init__(params, defaults)

    def _check(self, group: dict[str, Any]) -> None:
        if group["momentum"]:
            raise InvalidArgumentError("momentum must be 0")

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"grad_avg": 0.0, "square_avg": 0.0} if group["centered"] else {"square_avg": 0.0}

    def _update(self, group: dict[str, Any], t: int) -> Update:
        hypers = {"lr": float(group["lr"]), "rho": group["alpha"], "epsilon": group["eps"]}
        return Update("keras_centered_rms_prop" if group["centered"] else "keras_rms_prop", hypers)
