"""The command line: one verb per file, thin over the library."""
