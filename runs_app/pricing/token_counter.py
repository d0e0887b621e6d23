"""Counting by a tokenizer in a process of its own: their tables take 50 to 120 MB, more than the site has to spare.

`python -m runs_app.pricing.token_counter TOKENIZER` reads requests, a line of JSON each, and writes the tokens of the
largest. Such a process imports neither Django nor litellm, gets no keys, and reads the tokenizer from the file that
litellm brings.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from runs_app.pricing import litellm_data, tokens
from runs_app.pricing.tokens import Count, TextRule, Texts

TIME_LIMIT_S = 120  # 16 MB of requests take some 4 s.
ROOT = Path(__file__).resolve().parents[2]

log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()
failed: set[str] = set()
"""Tokenizers that could not be run when they were last tried in this process."""


class CountError(Exception):
    """Why nothing was counted."""


def largest_of(requests: Iterable[Texts], rule: TextRule) -> int:
    """Tokens of the largest request, by the rule's tokenizer; 0 without any. CountError where it cannot be run.

    Requests are passed on one by one, so memory stays flat however many there are.
    """
    tokenizer = str(rule.tokenizer)
    try:
        with _one_at_a_time, _process(tokenizer) as child:  # Two of them would take the memory of two.
            largest = _counted_by(child, requests, rule)
    except (OSError, ValueError) as error:
        failed.add(tokenizer)
        log.warning("the tokenizer %s could not be run: %s", tokenizer, error)
        raise CountError(str(error)) from error
    failed.discard(tokenizer)
    return largest


def _process(tokenizer: str) -> subprocess.Popen[str]:
    file = litellm_data.tokenizer_file(tokenizer)
    if file is None:
        raise ValueError("its file is missing or changed")
    return subprocess.Popen(
        [sys.executable, "-m", "runs_app.pricing.token_counter", tokenizer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        # tiktoken looks for its files here, and would else fetch them.
        env={"TIKTOKEN_CACHE_DIR": str(file.parent), "PATH": os.defpath, "PYTHONUTF8": "1"},
    )


def _counted_by(child: subprocess.Popen[str], requests: Iterable[Texts], rule: TextRule) -> int:
    """ValueError, or BrokenPipeError, where the process ends without a number."""
    limit = threading.Timer(TIME_LIMIT_S, child.kill)
    limit.start()
    try:
        margin = [rule.margin.numerator, rule.margin.denominator]
        how = {"margin": margin, "also_bytes": rule.also_bytes, "normalizes": rule.normalizes}
        for line in itertools.chain([how], requests):
            child.stdin.write(json.dumps(line) + "\n")  # type: ignore[union-attr]
        return int(child.communicate()[0])
    except BaseException:
        child.kill()
        raise
    finally:
        limit.cancel()


def load(tokenizer: str) -> Count:
    """The tokenizer's own count of a text. The file is the one that was checked."""
    file = litellm_data.tokenizer_file(tokenizer)
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
    """A line says how to count, each that follows is a request: JSON, all of it."""
    how = json.loads(sys.stdin.readline())
    rule = TextRule("", tokenizer, Fraction(*how.pop("margin")), **how)
    sys.stdout.write(str(tokens.largest(map(json.loads, sys.stdin), rule, load(tokenizer))))


if __name__ == "__main__":
    main(sys.argv[1])
