"""Ratings by people: queues, the raters' sessions, and their results.

`presentation_order` is pure. `queues` has the actions of managers, and `session` the actions of raters.
`queue_results` reads the ratings.
"""
