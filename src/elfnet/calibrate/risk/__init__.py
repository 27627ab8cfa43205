"""Finite-sample risk control: early exit that loses at most epsilon against full depth, with probability 1 - delta."""
