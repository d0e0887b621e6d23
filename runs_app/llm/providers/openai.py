"""OpenAI, and every server that speaks its API."""

from runs_app.llm.providers.base import COMMON_PARAMETERS, SERVER_PARAMETERS, Provider

PROVIDER = Provider(
    name="openai",
    label="OpenAI, or a server that speaks its API",
    default_url="https://api.openai.com/v1",
    key_name="OPENAI_API_KEY",
    parameters=COMMON_PARAMETERS | SERVER_PARAMETERS,
    checks_parameters=True,
    request_rates=(("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),),
    token_rates=(("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),),
    batch_api="runs_app.batches.openai_batches.OpenAiBatches",
    batch_label="OpenAI's files and batches",
)
