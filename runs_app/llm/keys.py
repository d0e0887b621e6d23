"""Keys of endpoints: the variables that may hold them, and the removal of keys from replies.

A variable is set in the environment, or an operator stored its value on the site (`runs_app/llm/stored_keys.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from typing import Any

from django.conf import settings

from evalsite.lib.ops.environment import KEY_PREFIX
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.stored_keys import load_stored_keys

KEYLESS = "not-needed"
PROVIDER_KEYS = frozenset(provider.key_name for provider in PROVIDERS.values() if provider.key_name) | {
    "CEREBRAS_API_KEY", "COHERE_API_KEY", "DASHSCOPE_API_KEY", "DEEPINFRA_API_KEY", "GOOGLE_API_KEY",
    "HYPERBOLIC_API_KEY", "MOONSHOT_API_KEY", "NEBIUS_API_KEY", "NOVITA_API_KEY", "NVIDIA_API_KEY",
    "PERPLEXITY_API_KEY", "SAMBANOVA_API_KEY", "ZAI_API_KEY",
}  # fmt: skip
"""The names that providers give to their keys. Every endpoint may name them."""
# These patterns mean the same in Python and in PostgreSQL, because the database checks them, too. The database does not
# have the site's settings, so it accepts every name that `EVALSITE_LLM_KEY_NAMES` may add.
NAME = r"^([A-Z][A-Z0-9_]*_(KEY|TOKEN)|EVALSITE_KEY_[A-Z0-9_]+)$"
OWN = (
    r"^EVALSITE_(?!KEY_)"
    r"|^(DJANGO|DATABASE|POSTGRES|AWS|SSH|GPG|GITHUB|GH|GITLAB|CI|ACTIONS|DOCKER|KUBE[A-Z]*|SYSTEMD|DBUS|SUDO"
    r"|HF|HUGGING_?FACE|VAULT|NPM|PYPI|STRIPE|AZURE_STORAGE|CF|CLOUDFLARE)_"
    r"|^(SECRET_KEY|CREDENTIALS_KEY|SESSION_TOKEN)$"
)
SHORTEST_SECRET = 8  # A shorter value, such as "ollama", is a word that may occur in answers.
REDACTED = "[key]"


def find_name_problem(name: str) -> str | None:
    """Return why this environment variable may not hold an endpoint's key, or None.

    Allowed are the names of `PROVIDER_KEYS`, names with `KEY_PREFIX`, and the names in `EVALSITE_LLM_KEY_NAMES`.
    """
    if not re.fullmatch(NAME[1:-1], name):
        return (
            "Must be the name of an environment variable that holds a key, such as OPENAI_API_KEY or EVALSITE_KEY_LAB."
        )
    if re.search(OWN, name):
        return f"{name} belongs to the site, its system or another service, and is never sent to a provider."
    if name in PROVIDER_KEYS or name.startswith(KEY_PREFIX) or name in settings.LLM_KEY_NAMES:
        return None
    return f"{name} is not a provider's name for its key. Use EVALSITE_KEY_..., or add it to EVALSITE_LLM_KEY_NAMES."


def read_key(name: str | None) -> str:
    """Return the value of a key variable. It is empty if the variable is not set or may not hold a key.

    The environment comes first.
    """
    if not name or find_name_problem(name) is not None:
        return ""
    return os.environ.get(name, "").strip() or load_stored_keys().get(name, "")


def list_secrets(*own: str) -> list[str]:
    """Return the values of all variables with the name of a key or token, and those of `own`, longest first.

    A provider may return the key of another endpoint, for example if it is a proxy with several keys.
    """
    values = {*own, *_read_environment_secrets(), *load_stored_keys().values()} - {KEYLESS}
    return sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)


_environment: tuple[dict[bytes, bytes], frozenset[str]] = ({}, frozenset())  # As last read, and its secrets.


def _read_environment_secrets() -> frozenset[str]:
    """Return the values of all variables with the name of a key or token.

    Every reply is searched for them. To decode the environment takes as long as to send a request, so it is decoded
    only after a change.
    """
    global _environment
    encoded: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    if encoded != _environment[0]:
        secrets = frozenset(value.strip() for name, value in os.environ.items() if re.search(NAME, name))
        _environment = (dict(encoded), secrets)
    return _environment[1]


def redact(text: str, secrets: Collection[str]) -> str:
    """Return the text with these secrets replaced."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact_body(body: bytes, secrets: Collection[str]) -> bytes:
    """Return a provider's reply without these keys. Replies are stored only in this form.

    JSON may write a character of a key as an escape (`\\u0073`, `\\/`). So a body with escapes is parsed, and is
    serialized again if it contains a key.
    """
    for secret in secrets:
        body = body.replace(secret.encode(), REDACTED.encode())
    if not secrets or not (b"\\u" in body or b"\\/" in body):
        return body
    try:
        payload = json.loads(body)
        clean = _redact_value(payload, secrets)
    except (ValueError, RecursionError):
        return body
    return body if clean == payload else json.dumps(clean).encode()


def _redact_value(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [_redact_value(element, secrets) for element in value]
    if isinstance(value, dict):
        return {redact(key, secrets): _redact_value(element, secrets) for key, element in value.items()}
    return value
