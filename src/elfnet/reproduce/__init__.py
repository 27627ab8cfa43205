"""The paper's tables: every system trained, calibrated and measured the same way, beside the paper's own numbers."""
