"""Surfaces of parametric tasks: counts by point, the site's leaderboard, the explorer and the analyses of answers.

`point_counts` adds up the rows once for each state of an experiment. Everything else reads its counts.
"""
