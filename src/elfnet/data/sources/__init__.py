"""Data sources: folders, lists, tables, feature arrays, CIFAR, digits, and data sets of the hub.

Files are checked before use, and no code in them is executed. This package must not import torch.
"""
