"""Two waves of one experiment side by side, and whether the model drifted between them."""
