"""Token counts by a tokenizer in a child process. Its tables take 50 to 120 MB, too much for the site's processes.

`python -m runs_app.pricing.token_counter TOKENIZER` reads one request per line of JSON, and writes the tokens of the
largest request. The child process imports neither Django nor litellm and gets no keys. It reads the tokenizer from a
file of the litellm package.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from fractions import Fraction

from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT, build_module_command
from runs_app.pricing import tokens
from runs_app.pricing.tokens import Count, TextRule, Texts

TIME_LIMIT_S = 120  # 16 MB of requests take about 4 s.

log = logging.getLogger(__name__)
_lock = threading.Lock()
failed_tokenizers: set[str] = set()
"""Tokenizers whose last run in this process failed."""


class CountError(Exception):
    """Raised if a tokenizer cannot be run."""


def count_largest(requests: Iterable[Texts], rule: TextRule) -> int:
    """Return the tokens of the largest request, by the rule's tokenizer; 0 without requests.

    Requests are passed on one by one, so memory use does not grow with their number. Raise CountError if the tokenizer
    cannot be run.
    """
    tokenizer = str(rule.tokenizer)
    try:
        with _lock, _start_process(tokenizer) as child:  # Two processes would double the memory.
            largest = _read_count(child, requests, rule)
    except (OSError, ValueError) as error:
        failed_tokenizers.add(tokenizer)
        log.warning("tokenizer %s failed: %s", tokenizer, error)
        raise CountError(str(error)) from error
    failed_tokenizers.discard(tokenizer)
    return largest


def encode_groups(tokenizer: str, groups: Iterable[list[str]]) -> Iterator[list[list[int]]]:
    """Yield the token ids of each text, group by group. One group is in memory at a time.

    Raise CountError if the tokenizer cannot be run.
    """
    try:
        with _lock, _start_process(tokenizer, "--ids") as child:
            limit = threading.Timer(TIME_LIMIT_S, child.kill)
            limit.start()
            try:
                for texts in groups:
                    child.stdin.write(json.dumps(texts) + "\n")  # type: ignore[union-attr]
                    child.stdin.flush()  # type: ignore[union-attr]
                    yield json.loads(child.stdout.readline())  # type: ignore[union-attr]
            finally:
                limit.cancel()
                child.kill()
    except (OSError, ValueError) as error:
        raise CountError(str(error)) from error


def _start_process(tokenizer: str, *options: str) -> subprocess.Popen[str]:
    file = tokens.find_tokenizer_file(tokenizer)
    if file is None:
        raise ValueError("the tokenizer file is missing or changed")
    return subprocess.Popen(
        build_module_command("runs_app.pricing.token_counter", tokenizer, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        # tiktoken looks for its files here; otherwise it would download them.
        env=build_child_environment(TIKTOKEN_CACHE_DIR=str(file.parent), PYTHONUTF8="1"),
    )


def _read_count(child: subprocess.Popen[str], requests: Iterable[Texts], rule: TextRule) -> int:
    """Return the child's result. Raise ValueError or BrokenPipeError if it ends without a number."""
    limit = threading.Timer(TIME_LIMIT_S, child.kill)
    limit.start()
    try:
        margin = [rule.margin.numerator, rule.margin.denominator]
        settings = {"margin": margin, "also_bytes": rule.also_bytes, "normalizes": rule.normalizes}
        for line in itertools.chain([settings], requests):
            child.stdin.write(json.dumps(line) + "\n")  # type: ignore[union-attr]
        return int(child.communicate()[0])
    except BaseException:
        child.kill()
        child.wait()
        with contextlib.suppress(BrokenPipeError):  # Requests in the buffer have no reader any more.
            child.stdin.close()  # type: ignore[union-attr]
        raise
    finally:
        limit.cancel()


def load_tokenizer(tokenizer: str) -> Count:
    """Return the tokenizer's own count function. Raise CountError if its file is missing or changed."""
    file = tokens.find_tokenizer_file(tokenizer)
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
    """Count requests from standard input, in lines of JSON.

    The first line has the settings, each further line a request.
    """
    settings = json.loads(sys.stdin.readline())
    rule = TextRule("", tokenizer, Fraction(*settings.pop("margin")), **settings)
    sys.stdout.write(str(tokens.find_largest(map(json.loads, sys.stdin), rule, load_tokenizer(tokenizer))))


def write_ids(tokenizer: str) -> None:
    """Read a list of texts from each line of standard input, and write their token ids as one line."""
    import tiktoken

    encoding = tiktoken.get_encoding(tokenizer)
    for line in sys.stdin:
        sys.stdout.write(json.dumps([encoding.encode_ordinary(text) for text in json.loads(line)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    write_ids(sys.argv[1]) if "--ids" in sys.argv[2:] else main(sys.argv[1])
