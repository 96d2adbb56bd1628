"""Results of other libraries for optimizers that TensorFlow lacks: cases, and ours for them.

As a script (``python -m golden.others keras`` in ``tests``), this writes a library's answers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tfopt
from tfopt_ref.algorithms import schedule_free_average
from tfopt_ref.training import first_state, train_step

__all__ = ["CASES", "DATA", "TOLERANCE", "answers", "ours"]

DATA = Path(__file__).parent / "data"
STEPS = 12
#: Of float64, relative to the largest weight: powers and means are computed in other orders.
TOLERANCE = {"keras": 1e-12, "torch": 1e-12, "optax": 1e-12, "schedulefree": 1e-12}
#: FBGEMM's are of float32.
TOLERANCE |= {"torch_optimizer": 1e-12, "fbgemm": 1e-6}

#: Keras takes some hyperparameters through float32, so these are numbers that it has.
_BETAS = {"beta_1": 0.875, "beta_2": 0.9921875}
_ADAM = {"learning_rate": 0.1, **_BETAS}
#: By library and case: the class, its arguments, and what goes around it.
CASES: dict[str, dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "keras": {
        "adamw": ("AdamW", {**_ADAM, "weight_decay": 0.25}, {}),
        "adamw, amsgrad": ("AdamW", {**_ADAM, "weight_decay": 0.5, "amsgrad": True}, {}),
        "adamw, clipped": ("AdamW", {**_ADAM, "weight_decay": 0.5, "global_clipnorm": 0.5}, {}),
        "adamw, exclusion": ("AdamW", {**_ADAM, "weight_decay": 0.5}, {"exclude": 1}),
        "lion": ("Lion", {**_ADAM}, {}),
        "lion, decay": ("Lion", {"learning_rate": 0.05, "weight_decay": 0.5, "beta_1": 0.5}, {}),
        "sgd, decay": ("SGD", {"learning_rate": 0.1, "momentum": 0.5, "weight_decay": 0.5}, {}),
        "adafactor": ("Adafactor", {"learning_rate": 0.3, "beta_2_decay": -0.75}, {}),
        "adafactor, loose": (
            "Adafactor",
            {
                "learning_rate": 0.25,  # less than Keras' bound, which stays there in these steps
                "beta_2_decay": -0.75,
                "clip_threshold": 0.5,
                "relative_step": False,
            },
            {},
        ),
        "ema": ("SGD", {"learning_rate": 0.1}, {"ema": (0.75, None)}),
        "ema, overwriting": ("Adam", _ADAM, {"ema": (0.75, 5)}),
        "loss scale": ("Adam", _ADAM, {"scale": (64.0, 3)}),
        "accumulation": ("Adam", _ADAM, {"accumulate": 3}),
    },
    "torch": {
        "adamw": ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.25, "epsilon": 1e-30}, {}),
        "adamw, amsgrad": (
            "AdamW",
            {"learning_rate": 0.1, "weight_decay": 0.01, "epsilon": 1e-30, "amsgrad": True},
            {},
        ),
        "radam": ("RAdam", {"learning_rate": 0.1, "epsilon": 1e-3}, {}),
        "radam, fast": ("RAdam", {"learning_rate": 0.1, "epsilon": 1e-8, "beta_2": 0.875}, {}),
        "radam, never": ("RAdam", {"learning_rate": 0.1, "epsilon": 1e-8, "beta_2": 0.5}, {}),
    },
    # whose Yogi begins with another mean gradient and adds epsilon after the bias correction
    "optax": {
        "adopt": ("ADOPT", {"learning_rate": 0.1, "beta_1": 0.75, "beta_2": 0.875}, {}),
        "adopt, epsilon": ("ADOPT", {"learning_rate": 0.1, "epsilon": 0.5}, {}),
        "ademamix": ("AdEMAMix", {"learning_rate": 0.1, "beta_3": 0.96875, "alpha": 2.0}, {}),
        "ademamix, epsilon": ("AdEMAMix", {"learning_rate": 0.1, "epsilon": 0.5}, {}),
        "signum": ("Signum", {"learning_rate": 0.1, "momentum": 0.75}, {}),
        "lamb": ("LAMB", {**_ADAM, "epsilon": 1e-6}, {}),
        "lamb, decay": ("LAMB", {"learning_rate": 0.1, "weight_decay": 0.25, "epsilon": 0.5}, {}),
        # which divides by the norm of g + decay * w, as papers do only without decay
        "lars": ("LARS", {"learning_rate": 0.5, "momentum": 0.75, "trust": 0.125}, {}),
        "yogi": ("Yogi", {**_ADAM, "initial_accumulator_value": 0.0, "epsilon": 2.0**-100}, {}),
    },
    "torch_optimizer": {
        "lars, decay": (
            "LARS",
            {"learning_rate": 0.5, "momentum": 0.75, "trust": 0.125, "weight_decay": 0.25},
            {},
        ),
        "lars, epsilon": (
            "LARS",
            {"learning_rate": 0.5, "trust": 0.125, "weight_decay": 0.5, "epsilon": 0.25},
            {},
        ),
    },
    # of which the fast path on processors ignores weight decay
    "fbgemm": {
        "rowwise adagrad": ("RowwiseAdagrad", {"learning_rate": 0.1}, {"tables": True}),
        "rowwise adagrad, epsilon": (
            "RowwiseAdagrad",
            {"learning_rate": 0.5, "epsilon": 0.25},
            {"tables": True},
        ),
    },
    "schedulefree": {
        "sgd": ("ScheduleFreeSGD", {"learning_rate": 0.1, "momentum": 0.75}, {}),
        "sgd, decay": ("ScheduleFreeSGD", {"learning_rate": 0.1, "weight_decay": 0.5}, {}),
        "adamw": ("ScheduleFreeAdamW", {"learning_rate": 0.1, "beta_2": 0.875}, {}),
        "adamw, decay": (
            "ScheduleFreeAdamW",
            {"learning_rate": 0.1, "weight_decay": 0.25, "epsilon": 0.5},
            {},
        ),
    },
}


def _inputs(around: dict[str, Any]) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    random = np.random.default_rng(11)
    first = [random.normal(size=(3, 4)), random.normal(size=5)]
    if "tables" in around:
        first = [random.normal(size=shape).astype(np.float32) for shape in ((3, 4), (5, 8))]
    grads = [[random.normal(size=w.shape).astype(w.dtype) for w in first] for _ in range(STEPS)]
    if "scale" in around:  # two steps are left out
        grads[2][0][1, 1], grads[7][1][0] = np.inf, np.nan
    return first, grads


def _made(library: str, case: str) -> Any:
    """Return the optimizer of a case, whose variables are w0 and w1."""
    name, arguments, around = CASES[library][case]
    own = tfopt.optimizers
    opt = getattr(own, name)(**arguments)
    if "exclude" in around:
        opt.exclude_from_weight_decay(var_names=[f"^w{around['exclude']}$"])
    if "ema" in around:
        opt = own.WeightAverage(opt, *around["ema"])
    if "accumulate" in around:
        opt = own.GradientAccumulation(opt, around["accumulate"])
    if "scale" in around:
        opt = own.LossScaleOptimizer(opt, *around["scale"])
    return opt


def ours(package: str, library: str, case: str) -> Iterator[list[np.ndarray]]:
    """Take the steps of a case; yield the weights after each, and the averages if there are any."""
    return (_specified if package == "tfopt_ref" else _ours)(library, case)


def _specified(library: str, case: str) -> Iterator[list[np.ndarray]]:
    _, _, around = CASES[library][case]
    first, grads = _inputs(around)
    config = tfopt.optimizers.serialize(_made(library, case))
    weights, state = {f"w{k}": w for k, w in enumerate(first)}, first_state(config)
    for step in grads:
        scale = state["dynamic_scale"] if "scale" in around else 1.0
        pairs = [(f"w{k}", g.dtype.type(scale) * g) for k, g in enumerate(step)]
        weights, state = train_step(config, weights, state, pairs)
        averages = list(state["average"].values()) if "ema" in around else []
        if library == "schedulefree":
            beta = config["config"].get("momentum", config["config"].get("beta_1"))
            slots = [state["slots"][name] for name in weights]
            averages = [
                schedule_free_average(w, of_one["offset"], beta)
                for w, of_one in zip(weights.values(), slots, strict=True)
            ]
        yield [*weights.values(), *averages]


def _ours(library: str, case: str) -> Iterator[list[np.ndarray]]:
    _, _, around = CASES[library][case]
    opt = _made(library, case)
    first, grads = _inputs(around)
    weights = [tfopt.Variable(w, f"w{k}") for k, w in enumerate(first)]
    for step in grads:
        scale = float(opt.dynamic_scale) if "scale" in around else 1.0
        opt.apply_gradients(
            [(g.dtype.type(scale) * g, w) for g, w in zip(step, weights, strict=True)]
        )
        averages = [opt.get_slot(w, "average").numpy() for w in weights] if "ema" in around else []
        after = [array.copy() for array in (*first, *averages)]
        if library == "schedulefree":
            with opt.averaged():
                after += [array.copy() for array in first]
        yield after


def _kerass(case: str) -> Iterator[list[np.ndarray]]:
    import keras

    keras.config.set_floatx("float64")
    name, arguments, around = CASES["keras"][case]
    options: dict[str, Any] = {}
    if "ema" in around:
        momentum, frequency = around["ema"]
        options = {"use_ema": True, "ema_momentum": momentum, "ema_overwrite_frequency": frequency}
    if "accumulate" in around:
        options["gradient_accumulation_steps"] = around["accumulate"]
    opt = getattr(keras.optimizers, name)(**arguments, **options)
    first, grads = _inputs(around)
    weights = [keras.Variable(w, dtype="float64") for w in first]
    if "exclude" in around:
        opt.exclude_from_weight_decay([weights[around["exclude"]]])
    inner = opt
    if "scale" in around:
        initial, growth = around["scale"]
        opt = keras.optimizers.LossScaleOptimizer(opt, initial, growth)
    opt.build(weights)
    for step in grads:
        scale = float(opt.dynamic_scale.numpy()) if "scale" in around else 1.0
        opt.apply([keras.ops.convert_to_tensor(scale * g) for g in step], weights)
        averages = inner._model_variables_moving_average if "ema" in around else []
        yield [np.array(variable.numpy()) for variable in (*weights, *averages)]


def _torchs(case: str) -> Iterator[list[np.ndarray]]:
    import torch

    name, arguments, around = CASES["torch"][case]
    first, grads = _inputs(around)
    weights = [torch.tensor(w, requires_grad=True) for w in first]
    given = dict(arguments)
    betas = given.pop("beta_1", 0.9), given.pop("beta_2", 0.999)
    opt = getattr(torch.optim, name)(
        weights, given.pop("learning_rate"), betas, given.pop("epsilon"), **given
    )
    for step in grads:
        for weight, g in zip(weights, step, strict=True):
            weight.grad = torch.tensor(g)
        opt.step()
        yield [weight.detach().numpy().copy() for weight in weights]


def _optaxs(case: str) -> Iterator[list[np.ndarray]]:
    import jax
    import optax.contrib

    jax.config.update("jax_enable_x64", True)
    name, arguments, around = CASES["optax"][case]
    theirs = {"epsilon": "eps", "beta_1": "b1", "beta_2": "b2", "beta_3": "b3", "momentum": "b1"}
    given = {theirs.get(k, k): value for k, value in arguments.items()}
    if "initial_accumulator_value" in given:
        rate, first_value = given.pop("learning_rate"), given.pop("initial_accumulator_value")
        scale = optax.scale_by_yogi(**given, initial_accumulator_value=first_value)
        opt = optax.chain(scale, optax.scale_by_learning_rate(rate))
    elif name == "Signum":  # is their Lion with the same decays
        opt = optax.lion(**given, b2=given["b1"], weight_decay=0.0)
    elif name == "LARS":
        rate, trust, momentum = given["learning_rate"], given["trust"], given["b1"]
        opt = optax.lars(rate, trust_coefficient=trust, momentum=momentum, weight_decay=0.0)
    else:
        module = optax if name == "LAMB" else optax.contrib
        opt = getattr(module, name.lower())(**given)
    first, grads = _inputs(around)
    weights = [jax.numpy.array(w) for w in first]
    state = opt.init(weights)
    for step in grads:
        updates, state = opt.update([jax.numpy.array(g) for g in step], state, weights)
        weights = optax.apply_updates(weights, updates)
        yield [np.array(w) for w in weights]


def _schedulefrees(case: str) -> Iterator[list[np.ndarray]]:
    import schedulefree
    import torch

    name, arguments, _ = CASES["schedulefree"][case]
    given = {{"learning_rate": "lr", "epsilon": "eps"}.get(k, k): v for k, v in arguments.items()}
    if name == "ScheduleFreeAdamW":
        given["betas"] = given.pop("beta_1", 0.9), given.pop("beta_2", 0.999)
    first, grads = _inputs({})
    weights = [torch.tensor(w, requires_grad=True) for w in first]
    opt = getattr(schedulefree, name.replace("ScheduleFree", "") + "ScheduleFree")(
        weights, foreach=False, **given
    )
    opt.train()
    for step in grads:
        for weight, g in zip(weights, step, strict=True):
            weight.grad = torch.tensor(g)
        opt.step()
        after = [weight.detach().numpy().copy() for weight in weights]
        opt.eval()
        after += [weight.detach().numpy().copy() for weight in weights]
        opt.train()
        yield after


def _torch_optimizers(case: str) -> Iterator[list[np.ndarray]]:
    import torch
    import torch_optimizer

    name, arguments, _ = CASES["torch_optimizer"][case]
    theirs = {"learning_rate": "lr", "epsilon": "eps", "trust": "trust_coefficient"}
    given = {"momentum": 0.9, "eps": 0.0} | {theirs.get(k, k): v for k, v in arguments.items()}
    first, grads = _inputs({})
    weights = [torch.tensor(w, requires_grad=True) for w in first]
    opt = getattr(torch_optimizer, name)(weights, **given)
    for step in grads:
        for weight, g in zip(weights, step, strict=True):
            weight.grad = torch.tensor(g)
        opt.step()
        yield [weight.detach().numpy().copy() for weight in weights]


def _fbgemms(case: str) -> Iterator[list[np.ndarray]]:
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    _, arguments, around = CASES["fbgemm"][case]
    first, grads = _inputs(around)
    place = EmbeddingLocation.HOST, ComputeDevice.CPU
    tables = [
        SplitTableBatchedEmbeddingBagsCodegen(
            [(*w.shape, *place)],
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=arguments["learning_rate"],
            eps=arguments.get("epsilon", 1e-8),
        )
        for w in first
    ]
    for table, w in zip(tables, first, strict=True):
        table.split_embedding_weights()[0].copy_(torch.from_numpy(w))
    for step in grads:
        for table, g in zip(tables, step, strict=True):  # each row is a bag
            rows = torch.arange(len(g))
            table(rows, torch.arange(len(g) + 1)).backward(torch.from_numpy(g))
        yield [table.split_embedding_weights()[0].numpy().copy() for table in tables]


def answers(library: str, case: str) -> Iterator[list[np.ndarray]]:
    """Yield what a library's optimizer makes of the weights, step by step."""
    own = {"keras": _kerass, "torch": _torchs, "optax": _optaxs, "schedulefree": _schedulefrees}
    own |= {"torch_optimizer": _torch_optimizers, "fbgemm": _fbgemms}
    return own[library](case)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for library in sys.argv[1:]:
        made = {
            f"{case}/{k}": np.stack(arrays)
            for case in CASES[library]
            for k, arrays in enumerate(zip(*answers(library, case), strict=True))
        }
        np.savez_compressed(DATA / f"{library}.npz", **made)
