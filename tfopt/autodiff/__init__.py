"""Gradients of NumPy's functions: a tape, custom gradients, and functions that are traced."""

from tfopt.autodiff import core  # before what imports it in turn
from tfopt.autodiff import vjps
from tfopt.autodiff.tape import GradientTape, UnconnectedGradients
from tfopt.autodiff.tensor import Tensor, constant, stop_gradient
from tfopt.indexed_slices import IndexedSlices

__all__ = [
    "GradientTape",
    "IndexedSlices",
    "Tensor",
    "UnconnectedGradients",
    "constant",
    "core",
    "stop_gradient",
    "vjps",
]
