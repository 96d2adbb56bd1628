"""Fits to fixed blocks of samples on an executor, with the same bits on any engine."""
