"""The foundation of all layers above the kernels; it imports nothing from them."""
