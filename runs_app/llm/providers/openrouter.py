"""OpenRouter, which passes calls on to other providers."""

from runs_app.llm.providers.base import COMMON_PARAMETERS, SERVER_PARAMETERS, Provider

PROVIDER = Provider(
    name="openrouter",
    label="OpenRouter",
    adapter="openrouter",  # It asks for the cost of each call.
    default_url="https://openrouter.ai/api/v1",
    key_name="OPENROUTER_API_KEY",
    parameters=COMMON_PARAMETERS | SERVER_PARAMETERS,
    checks_parameters=True,
    request_rates=(("x-ratelimit-remaining", "x-ratelimit-reset"),),
    takes_cache_marks=True,
    takes_routes=True,
)
