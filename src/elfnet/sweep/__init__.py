"""Sweeps: one recipe over a grid of settings, each run a process or a task of a cluster, and one table at the end."""
