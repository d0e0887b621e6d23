"""Results of experiments: aggregates, leaderboard, item matrix, figures and comparison of waves.

`frames` and `score_matrix` aggregate the rows in the database. `cached_aggregates` is the one mechanism for numbers
that are computed once and stored. `result_table` is the form of a table on a page and in a file.
"""
