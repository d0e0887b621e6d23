"""Stopping decisions on the points of adaptive runs, and the check of decided points against the rows."""
