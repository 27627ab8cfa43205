"""The report: one self-contained HTML page about finished runs, made from their files only."""
