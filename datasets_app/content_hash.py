"""The content of items as plain data, and its hash, which identifies a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalsite.lib.text.hashing import hash_content


def describe_item_content(
    *,
    key: str,
    input: str,
    image_sha256: str | None,
    target: str,
    choices: Iterable[str],
    grading_scheme: str,
    category: str,
    metadata: Mapping[str, Any],
    norms: Iterable[tuple[str, float, float | None, int | None]],
) -> dict[str, Any]:
    """Return the content of one item as plain data, without its position and its note."""
    return {
        "key": key,
        "input": input,
        "image": image_sha256,
        "target": target,
        "choices": list(choices),
        "grading_scheme": grading_scheme,
        "category": category,
        "metadata": dict(metadata),
        "norms": {dimension: [mean, sd, n] for dimension, mean, sd, n in norms},
    }


def hash_contents(contents: Iterable[dict[str, Any]]) -> str:
    """Return the SHA-256 over (key, hash of the content) of the items, in 64 hexadecimal digits.

    The order of the items does not matter. A hash of hashes needs only one item's content in memory at a time.
    """
    return hash_content(sorted((content["key"], hash_content(content)) for content in contents))
