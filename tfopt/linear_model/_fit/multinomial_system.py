"""The objective of multinomial logistic regression, and Newton's systems for it.

A system with few unknowns is solved by factorization, a larger one by conjugate gradients. Their
preconditioner is the Hessian's block of each class or, with many features, its diagonal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfopt.kernels.linear import hessian_products, second_order
from tfopt.linear_model._fit.conjugate_gradients import Precondition, conjugate_gradients
from tfopt.linear_model._fit.lanes import lane_predictions, lane_sums
from tfopt.linear_model._fit.problem import Problem, Rows
from tfopt.linear_model._fit.work import FACTOR, hessian_work, product_work
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.losses import LOSSES

__all__ = ["BETWEEN", "Multinomial", "MultinomialSystem", "is_small", "whole_hessian", "whole_work"]

#: Estimates: the number of products of conjugate gradients with the blocks of the classes as
#: preconditioner, the number of products that the blocks save, and the work between the products.
PRODUCTS, SAVED, BETWEEN = 10, 20, 5e6
#: If a system takes more products, the blocks are formed anew for the next one.
MANY = 3
#: With the blocks, the norm of the residual at which conjugate gradients stop, relative to that of
#: the gradient: a larger one is cheaper in spite of more Newton steps.
BLOCKS_TOLERANCE = 0.3


class Multinomial(NamedTuple):
    """The objective; scores, probabilities and factors are arrays with a row for each class.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, as the kernels take them.
    codes : ndarray of int, shape (n_samples,)
        The index of each sample's class.
    n_classes : int
    weight : ndarray, shape (n_samples,)
    n_features : int
    l2 : float
    intercept : bool
    threads : int
    offset : ndarray, shape (n_classes, n_samples), or None
        The numbers added to the scores.
    l1 : float
    """

    rows: Rows
    codes: np.ndarray
    n_classes: int
    weight: np.ndarray
    n_features: int
    l2: float
    intercept: bool
    threads: int
    offset: np.ndarray | None = None
    l1: float = 0.0

    def products(self, theta: np.ndarray) -> np.ndarray:
        """Return W x + b, shape (n_classes, n_samples); theta is W with b as its last column."""
        z = lane_predictions(self.rows, theta[:, :-1])
        z += theta[:, -1:]
        return z

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Return the `products` plus the offset."""
        z = self.products(theta)
        return z if self.offset is None else z + self.offset

    def gradient(self, factors: np.ndarray) -> np.ndarray:
        """Return the sum of the samples' factors times x and 1, shape (n_classes, n_features + 1).

        The last column is 0 without an intercept.
        """
        result = np.zeros((len(factors), self.n_features + 1))
        result[:, :-1] = lane_sums(self.rows, factors, self.n_features)
        if self.intercept:
            result[:, -1] = factors.sum(axis=1)
        return result

    def penalty(self, theta: np.ndarray) -> float:
        """Return l1 * |W|_1 + l2 / 2 * |W|**2."""
        with np.errstate(over="ignore"):
            l2 = float(self.l2 / 2 * np.square(theta[:, :-1]).sum())
        return l2 + (self.l1 * float(np.abs(theta[:, :-1]).sum()) if self.l1 > 0 else 0.0)

    def softmax(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the losses at scores, and the probabilities."""
        with np.errstate(over="ignore", invalid="ignore"):
            largest = z.max(axis=0)
            p = np.exp(z - largest)
            sums = p.sum(axis=0)
            losses = np.log(sums) + (largest - z[self.codes, np.arange(z.shape[1])])
            p /= sums
            return weighted_sum(self.weight, losses), p

    def slopes(self, p: np.ndarray) -> np.ndarray:
        """Return the weighted derivatives of the losses by the scores."""
        slopes: np.ndarray = self.weight * p
        slopes[self.codes, np.arange(p.shape[1])] -= self.weight
        return slopes

    @property
    def class_sums(self) -> np.ndarray:
        """The total weight of each class."""
        return np.bincount(self.codes, self.weight, minlength=self.n_classes)

    @property
    def of_a_class(self) -> Problem:
        """The problem of a class against the rest."""
        penalties = LOSSES["logistic"], self.l1, self.l2
        return Problem(self.rows, self.n_features, *penalties, self.intercept, self.threads)


def is_small(problem: Multinomial, most: float = math.inf) -> bool:
    """Whether to form the whole Hessian: if it is no more work than conjugate gradients."""
    binary = problem.of_a_class
    a_class = hessian_work(binary) + 2 * PRODUCTS * product_work(binary)
    return whole_work(problem) <= min(problem.n_classes * a_class + BETWEEN, most)


def whole_work(problem: Multinomial) -> float:
    """Return the work of forming the whole Hessian and factorizing it."""
    n, block = problem.n_classes, hessian_work(problem.of_a_class)
    return n * (n + 1) / 2 * block + FACTOR * float(n * (problem.n_features + 1)) ** 3 / 6


class MultinomialSystem:
    """The Newton systems; a preconditioner is reused until a system takes many products."""

    def __init__(self, problem: Multinomial) -> None:
        self.problem, self.is_small, self.n_products = problem, is_small(problem), math.inf
        self.precondition: Precondition | None = None

    def direction(self, gradient: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Solve H s = -gradient; H has no curvature where all intercepts change equally."""
        problem = self.problem
        if self.is_small:
            H, step = whole_hessian(problem, p), -gradient.ravel()
            if second_order.solve(H, step):
                return step.reshape(gradient.shape)
        penalty = np.full(problem.n_features + 1, problem.l2)
        penalty[-1] = 0.0
        weight, bends = problem.weight, problem.weight * p * (1 - p)
        if self.n_products > MANY:
            self.precondition = block_solver(problem, p)
        self.n_products = 0
        diagonal = np.ones((1, gradient.size))
        tolerance = None if self.precondition is None else BLOCKS_TOLERANCE
        if self.precondition is None:
            each = hessian_products.diagonal
            n, threads = problem.n_features, problem.threads
            squares = [each(*problem.rows, bend, n, threads) for bend in bends]
            diagonal = (penalty + np.array(squares)).reshape(1, -1)

        def product(_: np.ndarray, vectors: np.ndarray) -> np.ndarray:
            self.n_products += 1
            s = vectors.reshape(gradient.shape)
            u = problem.products(s) * p
            u -= p * u.sum(axis=0)
            u *= weight
            Hs: np.ndarray = problem.gradient(u) + penalty * s
            return Hs.reshape(1, -1)

        step = conjugate_gradients(
            product, diagonal, gradient.reshape(1, -1), self.precondition, tolerance
        )
        return np.asarray(step.reshape(gradient.shape))


def _block(problem: Multinomial, bends: np.ndarray) -> np.ndarray:
    """Return the sum of bend * x x^T, where x has a last feature of 1."""
    none, n = np.zeros_like(bends), problem.n_features
    return second_order.newton_system(*problem.rows, none, bends, n, problem.threads)[1]


def whole_hessian(problem: Multinomial, p: np.ndarray) -> np.ndarray:
    """Return the Hessian of the objective; without intercepts their diagonal entries are 1."""
    n, width = problem.n_classes, problem.n_features + 1
    H = np.empty((n, width, n, width))
    weighted = problem.weight * p
    for j in range(n):
        for k in range(j + 1):
            H[j, :, k] = H[k, :, j] = _block(problem, weighted[j] * ((j == k) - p[k]))
    if problem.intercept:  # a shift of all intercepts has no curvature
        H[:, -1, :, -1] += problem.weight.sum() / n**2
    else:
        H[:, -1] = H[..., -1] = 0.0
    penalty = np.full((n, width), problem.l2)
    penalty[:, -1] = 0.0 if problem.intercept else 1.0
    np.einsum("jiji->ji", H)[:] += penalty
    return H.reshape(n * width, n * width)


def block_solver(problem: Multinomial, p: np.ndarray) -> Precondition | None:
    """Return a function that solves the system of each class; None if the diagonal is better."""
    binary = problem.of_a_class
    if hessian_work(binary) > SAVED * product_work(binary):
        return None
    if (p == p[:, :1]).all():  # at the weights 0 the blocks are multiples of one
        block = _block(problem, problem.weight)
        blocks = (share * block for share in (p * (1 - p))[:, 0])
    else:
        blocks = (_block(problem, bend) for bend in problem.weight * p * (1 - p))
    factors = [binary.penalized(block) for block in blocks]
    if not all(second_order.solve(H, np.zeros(len(H))) for H in factors):
        return None

    def solve(_: np.ndarray, residual: np.ndarray) -> np.ndarray:
        solved = residual.copy()
        for H, each in zip(factors, solved.reshape(len(factors), -1), strict=True):
            second_order.solve(H, each, True)
        return solved

    return solve
