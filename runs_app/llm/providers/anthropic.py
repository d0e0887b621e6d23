"""Anthropic's Messages API. Its base URL excludes the version."""

from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers.base import Provider

VERSION = "2023-06-01"


def build_headers(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": VERSION}


PROVIDER = Provider(
    name="anthropic",
    label="Anthropic",
    adapter="anthropic",
    default_url="https://api.anthropic.com",
    key_name="ANTHROPIC_API_KEY",
    native=frozenset({"top_k"}),
    speaks_openai=False,
    needs_output_limit=True,  # The API requires one. The reservation rests on the model's; LiteLLM would send another.
    statuses={529: ErrorClass.OVERLOADED},
    request_rates=(("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),),
    token_rates=tuple(
        (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset")
        for kind in ("tokens", "input-tokens", "output-tokens")
    ),
    batch_api="runs_app.batches.anthropic_batches.AnthropicBatches",
    batch_label="Anthropic's message batches",
    models_path="/v1/models",
    models_headers=build_headers,
    takes_cache_marks=True,
    family="claude",
)
