"""Linear models: losses, visits, second derivatives, descent, interior points, streams."""
