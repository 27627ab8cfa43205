"""Figures of finished runs. Each figure is a function from a run's record to a `RunFigure`, drawn with matplotlib."""
