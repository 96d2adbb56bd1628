"""Bags of rows of an embedding table: pooled lookups, and the gradient of the table."""

from tfopt.bags.bags import Bags

__all__ = ["Bags"]
