"""Formats of dates and times, the same on pages and in the admin."""
