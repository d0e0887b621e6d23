"""Exports: tables in several formats, snapshots of a study, and bundles for another site.

`export_tables` declares the tables and `columns` their SQL. `file_formats` writes the bytes in constant memory.
`snapshots` and `bundles` put tables into one checksummed file.
"""
