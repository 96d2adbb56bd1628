"""What everything else stands on, and what imports nothing from above."""
