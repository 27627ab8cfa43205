"""One file per figure, each a function from plain data to a matplotlib figure."""
