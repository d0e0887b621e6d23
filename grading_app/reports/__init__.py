"""Results of experiments: aggregates, leaderboard, item matrix, figures and comparison of waves.

`frames` aggregates the rows in the database; scores come from the package `results`. `cached_aggregates` is the one
mechanism for numbers that are computed once and stored. `result_table` is the form of a table on a page and in a file.
"""
