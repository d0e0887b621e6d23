"""A call to a model without litellm: what it is, its one HTTP exchange, what a reply, an error or a limit means.

`runs_app.llm.gateway` puts it together with litellm. Nothing here knows trials or the database.
"""
