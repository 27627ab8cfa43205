"""Thresholds fitted on data that is not the test split, and the family of operating points they give."""
