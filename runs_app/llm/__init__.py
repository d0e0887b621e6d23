"""Calls to models without litellm: request, reply and failure, the HTTP exchange, errors, limits and costs.

`runs_app.llm.gateway` combines these modules with litellm. Nothing here depends on trials or the database.
"""
