"""Long-tailed image data: class-count profiles, sources, disjoint splits. NumPy only, no torch."""
