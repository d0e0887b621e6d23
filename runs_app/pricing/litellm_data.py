"""Files of the litellm package: tokenizers and a price list. Importing litellm takes seconds, so this does not."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

TOKENIZERS = "litellm_core_utils/tokenizers"
# The name of the file and the SHA-256 of its content. tiktoken names its files by the hash of their URL.
TOKENIZER_FILES: dict[str, tuple[str, str]] = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "claude": (
        "anthropic_tokenizer.json",
        "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
    ),
}


def find_litellm_folder() -> Path | None:
    """Return the folder of the litellm package; None if it is not installed."""
    spec = importlib.util.find_spec("litellm")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


@cache
def find_tokenizer_file(name: str) -> Path | None:
    """Return the file of a tokenizer; None if it is missing or its content differs."""
    folder = find_litellm_folder()
    file_name, sha256 = TOKENIZER_FILES[name]
    path = folder / TOKENIZERS / file_name if folder else None
    try:
        content = path.read_bytes() if path else b""
    except OSError:
        return None
    return path if hashlib.sha256(content).hexdigest() == sha256 else None
