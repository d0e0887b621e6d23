"""Calls to models: requests, replies and failures, the HTTP exchange, provider errors, rate limits and costs.

Only `runs_app.llm.gateway` uses litellm. Nothing here depends on trials or the database.
"""
