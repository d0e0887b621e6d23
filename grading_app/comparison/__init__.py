"""The comparison of raters: their agreement, their disagreements, and adjudication.

`raters` lists the raters that can be compared. `rating_selection` reads the selected raters and units from an address.
`unit_counts` loads their ratings in aggregated form. `agreement_report` computes the measures of agreement (numpy), and
`rater_plots` draws two raters. `disagreements` finds the largest differences. `adjudication` stores final scores.
"""
