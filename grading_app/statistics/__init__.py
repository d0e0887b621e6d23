"""How far raters agree: people with each other, judges with people. Pure: tables of numbers in, estimates out.

`ratings.ratings_from` makes the table of units x raters. A measure (`alpha.krippendorff_alpha`, `kappas.cohens_kappa`
and so on) makes a `Coefficient` of it, whose `result()` tells the estimate, with an interval where a formula gives
one; `resampling.bootstrap` gives an interval to any of them.

All modules but `estimates` import numpy. Code that a web process loads imports them inside the function that computes.
"""
