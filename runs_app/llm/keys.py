"""Keys of endpoints: the variables that may hold them, and the removal of keys from replies.

A variable is set in the environment, or an operator pasted its value on the site. Pasted keys are in one file of mode
0600 in the data folder, outside the database. The file belongs to this machine, like the environment. Workers on other
machines need the variable in theirs.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Any

from django.conf import settings

from evalsite.lib.ops.environment import KEY_PREFIX
from evalsite.lib.ops.file_lock import hold_lock, open_lock_file
from runs_app.llm.providers import PROVIDERS

FILE_NAME = "provider_keys.json"
MAX_CHARS = 5000
_read: dict[str, tuple[tuple[int, int, int], dict[str, str]]] = {}  # By path: the file's signature, and its keys.


class KeyRefused(ValueError):
    """A text that is no key. The message says why."""


def load_stored_keys() -> dict[str, str]:
    """Return the stored keys by the names of their variables. The file is read again when it has changed."""
    path = f"{settings.DATA_DIR}/{FILE_NAME}"
    try:
        state = os.stat(path)  # noqa: PTH116 - every call does this, and a Path takes ten times as long.
    except FileNotFoundError:
        return {}
    signature = (state.st_mtime_ns, state.st_ino, state.st_size)
    if path not in _read or _read[path][0] != signature:
        _read[path] = signature, json.loads(Path(path).read_text())
    return _read[path][1]


def store_key(name: str, key: str) -> None:
    """Store a key under the name of a variable, in place of an earlier one. An empty key deletes it.

    Raise KeyRefused if the text cannot be sent in a header.
    """
    key = key.strip()
    if key.startswith("{"):  # The JSON file of a service account.
        key = base64.b64encode(key.encode()).decode()
    if len(key) > MAX_CHARS or any(not "!" <= character <= "~" for character in key):
        raise KeyRefused("A key has no spaces, no line breaks and no letters with accents. Copy it again.")
    folder = Path(settings.DATA_DIR)
    with hold_lock(open_lock_file(folder / f"{FILE_NAME}.lock")):  # Two operators may store keys at once.
        keys = {**load_stored_keys(), name: key}
        content = json.dumps({name: key for name, key in sorted(keys.items()) if key})
        draft = folder / f".{FILE_NAME}.{secrets.token_hex(4)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE_NAME)


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

    A provider may return the key of another endpoint, for example if it is a proxy with several keys. Each part of a
    pair of keys is a secret, too.
    """
    keys = {*own, *_read_environment_secrets(), *load_stored_keys().values()} - {KEYLESS}
    values = keys.union(*(key.split(":") for key in keys if ":" in key))
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
