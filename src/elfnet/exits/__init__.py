"""The decision to leave: confidence, the training rule, and the policy shared by evaluation and serving."""
