"""Ollama, a server of local models, by its own API. Its base URL excludes the version."""

from collections.abc import Mapping
from typing import Any

from runs_app.llm.providers.base import COMMON_PARAMETERS, Provider

OPTIONS = frozenset({"min_p", "num_ctx", "repeat_penalty", "repeat_last_n", "mirostat", "think", "keep_alive"})


def get_defaults(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Switch thinking off, because Ollama's thinking models think unless this is set."""
    return {} if "reasoning_effort" in parameters else {"think": False}


PROVIDER = Provider(
    name="ollama_chat",
    label="Ollama",
    adapter="ollama_chat",
    default_url="http://localhost:11434",
    key_name="OLLAMA_API_KEY",
    is_self_hosted=True,
    parameters=COMMON_PARAMETERS | OPTIONS,
    native=OPTIONS | {"top_k"},
    speaks_openai=False,
    get_defaults=get_defaults,
    models_path="/v1/models",
)
