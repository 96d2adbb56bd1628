"""Where TensorFlow has `global_norm`."""

from tfopt_ref.clip_ops import global_norm

__all__ = ["global_norm"]
