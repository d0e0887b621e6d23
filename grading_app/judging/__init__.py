"""Judges: models that grade answers. Data flows one way.

`planning` makes trials out of done answers; the engine asks, as it asks for any trial; `reading` makes gradings and
preferences out of the replies, by the contract in `verdicts`; `panels` takes several judges' gradings together.
"""
