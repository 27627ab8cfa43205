"""Checkpoints and the run directory: versioned plain data, written atomically, read without executing anything."""
