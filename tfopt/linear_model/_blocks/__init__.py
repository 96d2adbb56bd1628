"""Fits to fixed blocks of samples on an executor; results have the same bits on any engine."""
