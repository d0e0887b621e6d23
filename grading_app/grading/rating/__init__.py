"""Ratings by people: queues, the raters' sessions, and their results.

`queues` has the actions of managers. `session` has the order of units and the actions of raters.
`queue_results` reads the ratings.
"""
