"""Analyses of a finished experiment: a scope, the scores in it, and sections of tables that are computed from them.

`scope` says which answers count, `data` reads their scores, each module of a section returns `ResultTable`s, and
`sections` lists them. The analysis page and the command `analyse` show the same tables.
"""
