"""Tapes and traced functions: an operation, a training step, a chain, rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfopt


class Operations:
    """100 products of 3 numbers, by what is done with them."""

    params = ["numpy", "no tape", "recorded", "gradient"]
    param_names = ["what"]

    def setup(self, what: str) -> None:
        self.array = np.array([0.9, 1.0, 1.1])
        self.tensor, self.factor = tfopt.constant(self.array), tfopt.constant(self.array)

    def time_products(self, what: str) -> None:
        if what == "numpy":
            y: Any = self.array
            for _ in range(100):
                y = y * self.array
        elif what == "no tape":
            y = self.tensor
            for _ in range(100):
                y = y * self.factor
        else:
            with tfopt.GradientTape() as tape:
                tape.watch(self.tensor)
                y = self.tensor
                for _ in range(100):
                    y = y * self.factor
            if what == "gradient":
                tape.gradient(y, self.tensor)


class Network:
    """One step's gradients of a 784-64-10 network, batch 32, by who computes them."""

    params = ["by hand", "eager", "replayed", "torch"]
    param_names = ["by"]

    def setup(self, by: str) -> None:
        random = np.random.default_rng(0)
        shapes = [(784, 64), (64,), (64, 10), (10,)]
        self.arrays = [np.float32(random.normal(size=shape) * 0.05) for shape in shapes]
        self.x = np.float32(random.normal(size=(32, 784)))
        self.t = np.eye(10, dtype=np.float32)[random.integers(0, 10, 32)]
        if by == "torch":
            try:
                import torch
            except ImportError:
                raise NotImplementedError("torch is not installed") from None
            torch.set_num_threads(1)
            self.torch = torch
            self.parameters = [torch.tensor(a, requires_grad=True) for a in self.arrays]
            self.inputs = torch.tensor(self.x), torch.tensor(self.t)
        elif by != "by hand":
            self.variables = [tfopt.Variable(array) for array in self.arrays]
            self.inputs = tfopt.constant(self.x), tfopt.constant(self.t)
            self.replayed = tfopt.function(self.eager)
            self.replayed(*self.inputs)

    def eager(self, x: Any, t: Any) -> Any:
        w1, b1, w2, b2 = self.variables
        with tfopt.GradientTape() as tape:
            z = np.maximum(x @ w1 + b1, 0) @ w2 + b2
            z = z - np.max(z, axis=1, keepdims=True)
            lse = np.log(np.sum(np.exp(z), axis=1, keepdims=True))
            loss = np.mean(np.sum((lse - z) * t, axis=1))
        return tape.gradient(loss, self.variables)

    def by_hand(self) -> Any:
        (w1, b1, w2, b2), x = self.arrays, self.x
        a = x @ w1
        a += b1
        h = np.maximum(a, 0)
        z = h @ w2
        z += b2
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=1, keepdims=True)
        p -= self.t
        p /= len(x)
        g = p @ w2.T
        g *= a > 0
        return x.T @ g, g.sum(0), h.T @ p, p.sum(0)

    def by_torch(self, x: Any, t: Any) -> Any:
        w1, b1, w2, b2 = self.parameters
        z = self.torch.relu(x @ w1 + b1) @ w2 + b2
        z = z - z.max(dim=1, keepdim=True).values
        lse = self.torch.log(self.torch.exp(z).sum(1, keepdim=True))
        return self.torch.autograd.grad(((lse - z) * t).sum(1).mean(), self.parameters)

    def time_step(self, by: str) -> None:
        if by == "by hand":
            self.by_hand()
        elif by == "torch":
            self.by_torch(*self.inputs)
        else:
            (self.eager if by == "eager" else self.replayed)(*self.inputs)


class Chains:
    """A chain of 100 small operations and its gradient."""

    params = ([3, 1000, 100_000], ["eager", "replayed"])
    param_names = ["size", "how"]

    def setup(self, size: int, how: str) -> None:
        self.x = tfopt.constant(np.linspace(0.5, 1.5, size))
        self.run = self.chain if how == "eager" else tfopt.function(self.chain)
        self.grad = self.gradient if how == "eager" else tfopt.function(self.gradient)
        self.run(self.x), self.grad(self.x)

    def chain(self, x: Any) -> Any:
        for _ in range(20):
            x = np.exp(-x) * 0.5 + 0.5
            x = x * x
        return x

    def gradient(self, x: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = self.chain(x)
        return tape.gradient(y, x)

    def time_forward(self, size: int, how: str) -> None:
        self.run(self.x)

    def time_gradient(self, size: int, how: str) -> None:
        self.grad(self.x)


class Embedding:
    """Gradient of, and step with, 1000 rows of 32: the table's size must not matter."""

    params = [10_000, 1_000_000]
    param_names = ["rows of the table"]

    def setup(self, rows: int) -> None:
        self.table = tfopt.Variable(np.zeros((rows, 32), np.float32))
        self.chosen = np.random.default_rng(0).integers(0, rows, 1000)
        self.optimizer = tfopt.optimizers.Adagrad(0.1)
        self.time_step(rows)

    def loss(self) -> Any:
        return np.sum(np.square(np.take(self.table, self.chosen, axis=0)))

    def time_gradient(self, rows: int) -> None:
        with tfopt.GradientTape() as tape:
            loss = self.loss()
        tape.gradient(loss, self.table)

    def time_step(self, rows: int) -> None:
        self.optimizer.minimize(self.loss, [self.table])


class Custom:
    """The call of a custom gradient, and its gradient."""

    def setup(self) -> None:
        self.x = tfopt.constant(np.ones(3))
        self.f = tfopt.custom_gradient(lambda x: (x * x, lambda d: d * 2.0))

    def time_gradient(self) -> None:
        with tfopt.GradientTape() as tape:
            tape.watch(self.x)
            y = self.f(self.x)
        tape.gradient(y, self.x)
