"""Experiment files: their shape and their errors, without Django, and the rows of their inline definitions."""
