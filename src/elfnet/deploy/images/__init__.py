"""From image files, pictures and arrays to what the network reads; Pillow and NumPy only."""
