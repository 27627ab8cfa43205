"""Classifiers fitted or trained anew on the features of a finished run."""
