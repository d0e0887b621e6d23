"""Stopping rules, and the coverage of the interval at the stop. Pure."""
