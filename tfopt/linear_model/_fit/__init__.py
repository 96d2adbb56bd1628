"""The solvers behind the estimators: dual coordinate ascent, Newton, duality gaps."""
