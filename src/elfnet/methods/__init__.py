"""Systems that change how a batch is trained on, or that start from a finished run: one file each."""
