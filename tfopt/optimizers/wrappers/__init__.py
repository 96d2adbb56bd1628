"""Optimizers around optimizers."""
