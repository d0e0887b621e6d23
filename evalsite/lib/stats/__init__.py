"""Intervals of means and shares, in plain Python."""
