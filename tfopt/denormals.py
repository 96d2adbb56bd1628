"""Whether denormal numbers are flushed to zero."""

from __future__ import annotations

from tfopt.kernels import runtime

__all__ = ["get_flush_denormals", "set_flush_denormals"]


def set_flush_denormals(flush: bool) -> None:
    """Choose between flushing denormal numbers to zero and gradual underflow.

    Flushing is the default, as in TensorFlow: with zero gradients the slots of many rules decay
    into the denormal range and stay there, where each operation takes a hundred cycles.

    Parameters
    ----------
    flush : bool
        True: denormal operands and results count as zeros of their sign. False: IEEE 754's gradual
        underflow. Holds for every kernel called from now on; the floating-point state of the
        calling thread is neither read nor changed.
    """
    runtime.set_flush(bool(flush))


def get_flush_denormals() -> bool:
    """Return whether denormals are flushed; False where the machine cannot."""
    return runtime.get_flush()
