"""Frozen snapshots: all tables of an experiment with what was asked and a study card, in one file with checksums."""
