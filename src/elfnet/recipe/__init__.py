"""What to run: the typed schema, the recipes shipped with the package, and overrides."""
