"""Running a trained network so that examples really leave."""
