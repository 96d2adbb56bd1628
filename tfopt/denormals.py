"""The treatment of denormal numbers: flushed to zero, or kept."""

from __future__ import annotations

from tfopt.kernels.platform import runtime

__all__ = ["get_flush_denormals", "set_flush_denormals"]


def set_flush_denormals(flush: bool) -> None:
    """Choose between flushing denormal numbers to zero and gradual underflow.

    Flushing is the default, as in TensorFlow: with zero gradients the slots of many rules decay
    into the denormal range and stay there, where an operation can take a hundred cycles.

    Parameters
    ----------
    flush : bool
        True: denormal operands and results are treated as zeros of the same sign. False: gradual
        underflow (IEEE 754). Applies to all subsequent kernel calls; the floating-point state of
        the calling thread is neither read nor changed.
    """
    runtime.set_flush(bool(flush))


def get_flush_denormals() -> bool:
    """Return whether denormals are flushed; always False on machines that cannot flush."""
    return runtime.get_flush()
