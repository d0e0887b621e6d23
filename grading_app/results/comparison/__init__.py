"""The comparison of two conditions, waves or experiments.

`condition_sides` describes the two sides and how their designs differ. `condition_scores` loads
the scores of both and lists their answers, differences first. `comparison_tables` tests the scores.
"""
