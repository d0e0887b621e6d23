"""Raters compared: agreement, disagreements, adjudication, and how judges grade.

In: the scores of rules, judges, panels and people, and human norms. `raters` lists who can be compared,
`rating_selection` reads the selected raters and units from an address, and `unit_counts` loads their ratings.
Out: the measures of agreement (`agreement_report`), the largest differences and final scores
(`disagreements`), and for judges their verdicts, choices between two answers and length bias.
"""
