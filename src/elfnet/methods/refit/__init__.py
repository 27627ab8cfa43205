"""Systems that start from a finished run and change its classifiers only."""
