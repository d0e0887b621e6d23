"""Fireworks. A model's ID is its path, such as accounts/fireworks/models/NAME."""

from runs_app.llm.providers.base import COMMON_PARAMETERS, Provider

PROVIDER = Provider(
    name="fireworks_ai",
    label="Fireworks",
    default_url="https://api.fireworks.ai/inference/v1",
    key_name="FIREWORKS_API_KEY",
    parameters=COMMON_PARAMETERS | {"min_p", "repetition_penalty"},
    token_rates=tuple(
        (f"x-ratelimit-remaining-tokens-{kind}", f"x-ratelimit-reset-tokens-{kind}") for kind in ("prompt", "generated")
    ),
)
