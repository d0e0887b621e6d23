"""Counting by a tokenizer in a process of its own: their tables take 50 to 120 MB, more than the site has to spare.

`python -m runs_app.counting TOKENIZER` reads requests as JSON and writes the tokens of the largest. Such a process
imports neither Django nor litellm, gets no keys, and reads the tokenizer from the file that litellm brings.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from runs_app import shipped, tokens
from runs_app.tokens import Count, TextRule, Texts

TIME_LIMIT_S = 60  # Some 8 MB of requests take 2 s.
ROOT = Path(__file__).resolve().parent.parent

log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()
failed: set[str] = set()
"""Tokenizers that could not be run when they were last tried in this process."""


class CountError(Exception):
    """Why nothing was counted."""


def largest_of(requests: Sequence[Texts], rule: TextRule) -> int:
    """Tokens of the largest request, by the rule's tokenizer. CountError where it cannot be run."""
    asked = {
        "requests": requests,
        "margin": [rule.margin.numerator, rule.margin.denominator],
        "also_bytes": rule.also_bytes,
    }
    try:
        with _one_at_a_time:  # Two of them would take the memory of two.
            done = _run(str(rule.tokenizer), json.dumps(asked))
        largest = int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        failed.add(str(rule.tokenizer))
        log.warning("the tokenizer %s could not be run: %s", rule.tokenizer, error)
        raise CountError(str(error)) from error
    failed.discard(str(rule.tokenizer))
    return largest


def _run(tokenizer: str, asked: str) -> subprocess.CompletedProcess[str]:
    file = shipped.tokenizer_file(tokenizer)
    if file is None:
        raise ValueError("its file is missing or changed")
    return subprocess.run(
        [sys.executable, "-m", "runs_app.counting", tokenizer],
        input=asked,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=TIME_LIMIT_S,
        cwd=ROOT,
        # tiktoken looks for its files here, and would else fetch them.
        env={"TIKTOKEN_CACHE_DIR": str(file.parent), "PATH": os.defpath, "PYTHONUTF8": "1"},
    )


def load(tokenizer: str) -> Count:
    """The tokenizer's own count of a text. The file is the one that was checked."""
    file = shipped.tokenizer_file(tokenizer)
    if file is None:
        raise CountError(f"{tokenizer}: its file is missing or changed")
    if tokenizer == "claude":
        from tokenizers import Tokenizer

        claude = Tokenizer.from_file(str(file))
        return lambda text: len(claude.encode(text.encode("utf-8", "replace").decode("utf-8")))
    import tiktoken

    encoding = tiktoken.get_encoding(tokenizer)
    return lambda text: len(encoding.encode_ordinary(text))


def main(tokenizer: str) -> None:
    asked = json.load(sys.stdin)
    rule = TextRule("", tokenizer, Fraction(*asked["margin"]), also_bytes=asked["also_bytes"])
    sys.stdout.write(str(tokens.largest(asked["requests"], rule, load(tokenizer))))


if __name__ == "__main__":
    main(sys.argv[1])
