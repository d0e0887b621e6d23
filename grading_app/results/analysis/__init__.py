"""Analyses of a finished experiment: the scores in a scope, and sections of tables that are computed from them.

`results.scope` selects the answers, `data` loads their scores, and each module of a section returns `ResultTable`s.
`sections` lists the sections. The analysis page and the command `analyse` show the same tables.
"""
