"""Statistics as pure functions: they take tables of numbers and return estimates, without Django.

They cover intervals, paired tests, models of factors, reliability, bias of judges, and agreement between raters.

For agreement, `Ratings.from_triples` builds the table of units x raters. A measure, such as
`agreement_coefficients.cohens_kappa`, turns it into a `Coefficient`. `Coefficient.result()` returns the estimate, with
an interval if there is a formula for it. `bootstrap.bootstrap` gives an interval for any measure.

Most modules import numpy. Code that a web process loads imports them inside the function that needs them.
"""
