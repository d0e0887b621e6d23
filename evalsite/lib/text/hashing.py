"""Content hashes: the same content has the same hash on every machine and in every year."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
SHORT_HASH = 12
SLUG_LENGTH = 50


def canonical_json(content: Any) -> str:
    """Return JSON with sorted keys and no white space. Equal numbers are written the same (1.0 as 1, -0.0 as 0).

    The content may consist of None, booleans, numbers, strings, lists, tuples and mappings with string keys.
    Raise TypeError for any other type, ValueError for a number that is not finite, and UnicodeError for a string that
    is not Unicode text.
    """
    return _ENCODER.encode(_canonicalize(content))


def hash_content(content: Any) -> str:
    """Return the SHA-256 of the canonical JSON in UTF-8, as 64 hexadecimal digits. Raise as `canonical_json` does."""
    return hashlib.sha256(canonical_json(content).encode("utf-8")).hexdigest()


def hash_token(token: str) -> str:
    """Return the SHA-256 of a secret token. Tokens are long and random, so the hash needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def slugify_name(name: str) -> str:
    """Return a name for URLs and identifiers: at most 50 lower-case ASCII letters, digits, and single "-" or "_".

    The result is never empty. A name without usable characters ("模型") becomes "n-" and the start of its hash.
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii").lower()
    slug = re.sub(r"[^a-z0-9_]+", "-", ascii_name).strip("-_")[:SLUG_LENGTH].rstrip("-_")
    return slug or f"n-{hash_content(name)[:8]}"


def build_condition_id(slug: str, content: Any) -> str:
    """Return `slug--hash12`. Raise ValueError for an empty slug.

    The slug is for people. The first twelve digits of the content's hash are the identity.
    """
    if not slug:
        raise ValueError("a condition needs a slug")
    return f"{slug}--{hash_content(content)[:SHORT_HASH]}"


def _canonicalize(value: Any) -> Any:
    if isinstance(value, str):
        return _check_unicode(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no canonical JSON")
        return int(value) if value.is_integer() else value
    if isinstance(value, (list, tuple)):
        return [_canonicalize(element) for element in value]
    if isinstance(value, (dict, Mapping)):  # A dict first: an abstract class is slow to check.
        return {_check_key(key): _canonicalize(element) for key, element in value.items()}
    raise TypeError(f"{type(value).__name__} has no canonical JSON: turn it into text or numbers first")


def _check_unicode(value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnicodeError(f"an unpaired surrogate at position {error.start} is not text") from None
    return value


def _check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys are strings in canonical JSON, not {type(key).__name__} ({key!r})")
    return _check_unicode(key)
