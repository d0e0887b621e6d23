"""Together."""

from runs_app.llm.providers.base import COMMON_PARAMETERS, Provider

PROVIDER = Provider(
    name="together_ai",
    label="Together",
    default_url="https://api.together.xyz/v1",
    key_name="TOGETHER_API_KEY",
    parameters=COMMON_PARAMETERS | {"min_p", "repetition_penalty", "chat_template_kwargs"},
    token_rates=(("x-tokenlimit-remaining", "x-tokenlimit-reset"),),
)
