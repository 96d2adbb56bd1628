"""What everything above the kernels stands on; it imports nothing from above itself."""
