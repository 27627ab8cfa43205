"""Training: forward with leaving, schedules, what the machine does well, the loop and its log."""
