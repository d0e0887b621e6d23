"""Grading: the answers get grades from rules, judges and people, and points of adaptive runs their decisions.

In: done answers. Out: rows of gradings, preferences and decisions. `scoring` grades by the scorers of
`runs_app.scorers`, `judging` asks models, and `rating` asks people. `adaptive_decisions` decides when a point has
enough answers. `consistency_check` compares stored counts with the rows, and `retention` removes old raw responses.
"""
