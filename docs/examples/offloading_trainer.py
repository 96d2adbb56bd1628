"""Training in bfloat16 with float32 weights and states elsewhere, in hooks of torch's backward.

The model computes in bfloat16: its parameters are the copies that `Mirror` writes while the step's
results are in the cache. The weights that learn, of float32, and the optimizer's states are arrays
of NumPy. A hook hands each gradient over as soon as it is there, so that its norm is summed during
backward; the step then clips by the norm of all of them without a pass over them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from tfopt import checkpoints
from tfopt.optimizers import AdamW, Mirror


class Trainer:
    """Steps of a model whose losses are given to `step`.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU. Its parameters become bfloat16, and are the trainer's from then on.
    optimizer : tfopt.optimizers.Optimizer, optional
        By default ``AdamW(1e-3, weight_decay=0.01, global_clipnorm=1.0)``. ``storage="8bit"`` takes
        a quarter of the memory for its states.
    path : str, optional
        The file of `save`. If it is there already, training goes on from it, to the same bits.
    """

    def __init__(self, model: Any, optimizer: Any = None, path: str | None = None) -> None:
        self.weights = {
            name: parameter.detach().float().numpy().copy()
            for name, parameter in model.named_parameters()
        }
        adamw = AdamW(1e-3, weight_decay=0.01, global_clipnorm=1.0)
        self.optimizer = Mirror(adamw if optimizer is None else optimizer)
        self.path, self.steps = path, 0
        if path is not None and os.path.exists(path):
            saved = checkpoints.load(path)
            self.steps = saved["steps"]
            for name, weight in self.weights.items():
                weight[...] = saved["weights"][name]
            self.optimizer.load_state_dict(saved["optimizer"], self.weights)
        for name, parameter in model.named_parameters():
            mirror = self.optimizer.mirror(self.weights[name])
            shared = torch.from_numpy(mirror.view(np.int16)).view(torch.bfloat16)
            parameter.data = shared
            parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._add(name, p))
        self._arriving = self.optimizer.arriving(self.weights)

    def _add(self, name: str, parameter: Any) -> None:
        self._arriving.add(name, parameter.grad)
        parameter.grad = None  # which the step keeps

    def step(self, loss: Any) -> float:
        """Take a step down a loss; return the norm of the gradients before they are clipped.

        If a gradient is infinite or NaN, no step is taken, and the norm is not finite.
        """
        loss.backward()
        norm = self._arriving.norm
        if np.isfinite(norm):
            self._arriving.take()
            self.steps += 1
        else:
            self._arriving.drop()
        return norm

    def save(self) -> None:
        """Write the file from which another trainer goes on."""
        state = self.optimizer.state_dict(self.weights)
        run = {"steps": self.steps, "weights": self.weights, "optimizer": state}
        checkpoints.save(self.path, run)
