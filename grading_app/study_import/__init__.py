"""Import of studies that were made with other tools: trials, answers, costs and scores, without a call.

`study` has the records that every importer produces, each format has one module that reads it, and `writer` writes a
study as rows. A value that the source does not have stays unknown, never zero.
"""
