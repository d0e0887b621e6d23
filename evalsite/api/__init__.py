"""The API under `/api/v1/`: JSON views over the functions behind the pages and commands.

In: requests with an access token, or with a session and its CSRF token. Every row comes through `reach`, which applies
`visible_to` and the limits of the token. Out: JSON pages, streamed tables, and problem details for every error.
Nothing is planned, launched, graded or exported here: each operation calls the function of its page.
"""
