"""Networks as stages with a head behind each, and what they cost."""
