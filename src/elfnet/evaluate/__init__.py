"""The exit table (every exit's logits for every example) and all that is computed from it."""
