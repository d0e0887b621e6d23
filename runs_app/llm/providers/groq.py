"""Groq."""

from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers.base import COMMON_PARAMETERS, Provider

PROVIDER = Provider(
    name="groq",
    label="Groq",
    default_url="https://api.groq.com/openai/v1",
    key_name="GROQ_API_KEY",
    parameters=COMMON_PARAMETERS | {"include_reasoning"},
    statuses={498: ErrorClass.OVERLOADED},  # It has no capacity for this tier.
)
