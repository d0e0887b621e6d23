"""The comparison of raters: their agreement, their disagreements, and adjudication.

`raters` lists the raters that can be compared. `rating_selection` reads from an address which of them, on which units.
`unit_counts` fetches their ratings in aggregated form. `agreement_report` and `rater_plots` compute (numpy).
`disagreements` finds the largest differences, and `adjudication` settles one.
"""
