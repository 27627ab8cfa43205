"""Features of the training split made less unequal in number by class, one way a file, through imbalanced-learn."""
