"""Sums over arrays in an order that is the same on every machine: norms, and clipping by them."""
