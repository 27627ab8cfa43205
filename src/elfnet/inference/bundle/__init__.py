"""The bundle format: one file with graphs, weights, operating points and preprocessing, without torch."""
