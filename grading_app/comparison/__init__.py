"""Raters beside each other: how far they agree, where they part, and who has the last word.

`raters` says who can be compared, `asking` reads an address into a question, `frames` fetches its ratings set-based;
`measuring` and `figures` compute (numpy), `disagreeing` finds the largest splits, `adjudicating` settles one.
"""
