"""The files that leave the site: figures for papers, the report, exported tables, snapshots and bundles.

In: the tables and figures of `results`, `raters` and `parametric`, and rows. Out: files whose numbers recompute from
the rows. `figures` writes pictures in print style, `report` the report, and `export` tables, snapshots and bundles.
"""
