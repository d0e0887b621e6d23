"""Surfaces of parametric tasks: counts by point, the site's leaderboard, the explorer and the analyses of answers.

`point_counts` counts the rows once for each state of an experiment. The other modules read its counts.
"""
