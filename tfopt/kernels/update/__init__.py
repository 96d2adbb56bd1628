"""The rules and their execution: formulas, loops, checks, drivers."""
