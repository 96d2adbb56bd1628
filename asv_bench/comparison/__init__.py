"""The parts of compare.py, which measures tfopt side by side with its rivals."""
