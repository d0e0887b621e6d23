"""Rating by people: queues, the raters' sessions, and what comes of them.

`ordering` is pure. `queues` has the verbs of those who ask, `sessions` those of the rater; `results` and `norms` read.
"""
