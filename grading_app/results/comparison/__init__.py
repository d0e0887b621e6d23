"""The comparison of two conditions, waves or experiments.

`condition_sides` describes the two sides and how their designs differ. `condition_scores` loads
the scores of both, and `comparison_tables` tests them. `compared_answers` lists the answers, differences first.
"""
