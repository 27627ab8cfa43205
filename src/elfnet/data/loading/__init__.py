"""Batches to train on and to evaluate with, from images in memory, image files and feature rows.

`build` makes the feeds that a recipe calls for, `feed` has the feeds themselves, `sampler` says which examples an epoch
shows. `memory`, `files` and `features` read the examples, `workers` does so in other processes; `normalise` finishes a
batch on its device.
"""
