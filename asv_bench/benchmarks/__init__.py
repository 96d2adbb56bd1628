"""The benchmarks of tfopt, for airspeed velocity; README.md says how to run them."""
