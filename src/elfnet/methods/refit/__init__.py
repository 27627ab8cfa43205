"""Refits: the classifiers of a finished run are changed, fitted or trained again; its features stay the same."""
