"""Results of experiments: scores, their means and intervals, tables, figures, waves, analyses and comparisons.

In: the rows of the view `AnswerScore`, which has one for each answer and grader, and the scales of graders and
dimensions. `scores` is the one place of a measure: `load_scores` returns arrays by item and condition, and `estimate`
returns a condition's mean with its interval and its missing answers. `frames` counts answers by outcome.
Out: `ResultTable` (`table`), the form of a table on a page and in a file, and the pictures of `figures`.

`cached_aggregates` stores numbers that are computed once. `stored_results` assembles the results page, `waves`
compares waves, `analysis` has the sections of the analysis page, and `comparison` compares two conditions.
"""
