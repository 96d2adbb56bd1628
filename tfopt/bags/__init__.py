"""Bags of rows of an embedding table: pooled lookups, and the gradient of the table."""

from tfopt.bags.bags import Bags
from tfopt.bags.together import lookup_bags

__all__ = ["Bags", "lookup_bags"]
