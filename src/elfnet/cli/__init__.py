"""One verb a file, thin over the library."""
