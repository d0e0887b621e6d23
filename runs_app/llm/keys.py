"""Keys of endpoints: the environment variables that may hold them, and the removal of keys from replies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from typing import Any

from django.conf import settings

KEYLESS = "not-needed"
# These patterns mean the same in Python and in PostgreSQL, because the database checks them, too.
NAME = r"^[A-Z][A-Z0-9_]*_(KEY|TOKEN)$"
OWN = (
    r"^(EVALSITE|DJANGO|DATABASE|POSTGRES|AWS|SSH|GPG|GITHUB|GH|GITLAB|CI|ACTIONS|DOCKER|KUBE[A-Z]*|SYSTEMD|DBUS|SUDO)_"
    r"|^(SECRET_KEY|CREDENTIALS_KEY|SESSION_TOKEN)$"
)
SHORTEST_SECRET = 8  # A shorter value, such as "ollama", is a word that may occur in answers.
REDACTED = "[key]"


def find_name_problem(name: str) -> str | None:
    """Return why this environment variable may not hold an endpoint's key, or None."""
    if not re.fullmatch(NAME[1:-1], name):
        return "Must be the name of an environment variable that ends in _API_KEY, _KEY or _TOKEN: OPENAI_API_KEY."
    if re.search(OWN, name):
        return f"{name} belongs to the site or its system and is never sent to a provider. Name another variable."
    allowed = settings.LLM_KEY_NAMES
    if allowed and name not in allowed:
        return f"{name} is not on the list of key variables; an operator adds it to EVALSITE_LLM_KEY_NAMES."
    return None


def read_key(name: str | None) -> str:
    """Return the value of a key variable. It is empty if the variable is not set or may not hold a key."""
    if not name or find_name_problem(name) is not None:
        return ""
    return os.environ.get(name, "").strip()


def list_secrets(*own: str) -> list[str]:
    """Return the values of all variables that may hold a key, and those of `own`, longest first.

    A provider may return the key of another endpoint, for example if it is a proxy with several keys.
    """
    names = (name for name in os.environ if name.endswith(("_KEY", "_TOKEN")))
    values = {*own, *map(read_key, names)} - {KEYLESS}
    return sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)


def redact(text: str, secrets: Collection[str]) -> str:
    """Return the text with these secrets replaced."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact_body(body: bytes, *own: str) -> bytes:
    """Return a provider's reply without keys. Replies are stored only in this form.

    JSON may write a character of a key as an escape (`\\u0073`, `\\/`). So a body with escapes is parsed, and is
    serialized again if it contains a key.
    """
    secrets = list_secrets(*own)
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
