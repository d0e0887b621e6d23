"""Results of parametric tasks: counts by point, the leaderboard of models, the explorer, and analyses of answers.

In: the right answers by point, counted once for each state of an experiment (`point_counts`). Out: tables and figures
of a surface, of the leaderboard (`model_board`), and of the lengths and texts of answers. `surface` also
compares a measured surface with a simulated one.
"""
