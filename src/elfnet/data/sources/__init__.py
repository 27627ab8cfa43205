"""Readers of data sets: folders, lists, tables, feature arrays, CIFAR, digits, and data sets of a hub.

Files are checked before use, and nothing that is read is executed. This package must not import torch.
"""
