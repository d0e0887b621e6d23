"""The comparison of raters: their agreement, their disagreements, and adjudication.

`raters` lists the raters that can be compared. `query` reads a question from an address. `unit_counts` fetches its
ratings in aggregated form. `agreement_report` and `plots` compute (numpy). `disagreements` finds the largest
differences, and `adjudication` settles one.
"""
