"""Texts: hashes, number formats, differences, and checks that PostgreSQL, YAML or a spreadsheet needs."""
