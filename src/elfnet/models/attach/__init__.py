"""Exits on any backbone: a model is recorded, cut where one tensor is live, and given heads."""
