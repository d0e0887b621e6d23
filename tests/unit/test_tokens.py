"""Token counts by a model's public tokenizer; no request exceeds the count of the largest request."""

import hashlib
import os
import subprocess
import sys
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runs_app.pricing import token_counter, tokens
from runs_app.pricing.costs import estimate_tokens

words = st.text(max_size=60) | st.text("0123456789 {}[];é猫🙂\n", max_size=60)
requests = st.lists(st.lists(words, min_size=1, max_size=3), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def no_failed_tokenizers(monkeypatch):
    monkeypatch.setattr(token_counter, "failed_tokenizers", set())


@pytest.fixture(scope="module", params=["cl100k_base", "claude"])
def rule_and_count(request):
    """Return the token rule, and the count function of the tokenizer loaded from its file."""
    rule = tokens.CL100K if request.param == "cl100k_base" else tokens.CLAUDE
    folder = str(tokens.find_tokenizer_file(request.param).parent)
    with mock.patch.dict(os.environ, TIKTOKEN_CACHE_DIR=folder):
        return rule, token_counter.load_tokenizer(request.param)


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("gpt-4o", tokens.O200K),
        ("openai/gpt-4o-mini:free", tokens.O200K),
        ("ft:gpt-4o-2024-08-06:lab::1", tokens.O200K),
        ("gpt-4.1-nano", tokens.O200K),
        ("gpt-5.5-2026-04-23", tokens.O200K),
        ("o3", tokens.O200K),
        ("o4-mini-2025-04-16", tokens.O200K),
        ("openai/gpt-oss-120b", tokens.O200K),
        ("gpt-4", tokens.CL100K),
        ("gpt-4-turbo", tokens.CL100K),
        ("gpt-3.5-turbo", tokens.CL100K),
        ("anthropic/claude-sonnet-4.5", tokens.CLAUDE),
        ("gpt-6-sol", tokens.BYTES),
        ("gemini-3.5-flash", tokens.BYTES),
        ("Qwen/Qwen3-VL-8B", tokens.BYTES),
        ("sim-large", tokens.BYTES),
    ],
)
def test_a_model_is_counted_by_its_familys_tokenizer_or_else_by_bytes(model, rule):
    assert tokens.find_text_rule(model) == rule


def test_the_tokenizer_files_have_the_expected_hashes():
    for name in tokens.TOKENIZER_FILES:
        assert tokens.find_tokenizer_file(name) is not None, f"{name}: litellm ships another file now"


@pytest.mark.parametrize("content", [None, b"another file"])
def test_without_its_tokenizer_file_a_model_is_counted_by_bytes_and_this_is_reported(tmp_path, monkeypatch, content):
    monkeypatch.setattr(tokens, "find_litellm_folder", lambda: tmp_path)
    monkeypatch.setattr(tokens, "find_tokenizer_file", tokens.find_tokenizer_file.__wrapped__)
    if content is not None:
        folder = tmp_path / tokens.TOKENIZERS
        folder.mkdir(parents=True)
        (folder / tokens.TOKENIZER_FILES["o200k_base"][0]).write_bytes(content)
        assert hashlib.sha256(content).hexdigest() != tokens.TOKENIZER_FILES["o200k_base"][1]
    rule = tokens.find_text_rule("gpt-4o")
    assert rule.tokenizer is None
    assert "missing or changed" in rule.description


@given(requests)
@example([["a " * 30], ["{}" * 29], ["1 2 3 4 5 6 7 8 9"]])
def test_no_request_has_more_tokens_than_the_largest(rule_and_count, found):
    rule, count = rule_and_count
    largest = tokens.find_largest(found, rule, count)
    each = [sum(map(count, texts)) + 4 * len(texts) + 3 for texts in found]
    assert max(each) <= largest
    assert rule is not tokens.CL100K or largest == max(each)


@given(st.lists(words, min_size=1, max_size=3))
@example(["¼"])
@example(["\ufdfa"])
def test_no_request_exceeds_its_bound_in_bytes(rule_and_count, texts):
    rule, count = rule_and_count
    assert rule.compute_tokens(sum(map(count, texts)), texts) <= rule.bound(texts)


@given(st.lists(words, min_size=1, max_size=3))
def test_claude_is_never_counted_below_bytes(texts):
    assert tokens.CLAUDE.compute_tokens(0, texts) == tokens.estimate_by_bytes(texts)


def test_requests_that_cannot_be_the_largest_are_not_tokenized():
    counted = []

    def count(text):
        counted.append(text)
        return estimate_tokens(text)

    tokens.find_largest([["word " * 100], ["short"], ["brief"]], tokens.O200K, count)
    assert counted == ["word " * 100]


def test_a_count_by_bytes_includes_texts_turns_and_the_reply_prefix():
    assert tokens.estimate_by_bytes(["abc", "abcd"]) == (1 + 4) + (2 + 4) + 3
    assert tokens.estimate_by_bytes([]) == 0


def test_the_counting_process_counts_like_the_tokenizer(rule_and_count):
    rule, count = rule_and_count
    texts = [["The quick brown fox.", "猫 🙂 1234567"], ["<|endoftext|> \ud800 is text"]]
    assert token_counter.count_largest(texts, rule) == tokens.find_largest(texts, rule, count)


def test_the_counting_process_inherits_no_api_keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    environment = {}
    real = subprocess.Popen

    def start(*args, **kwargs):
        environment.update(kwargs["env"])
        return real(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert token_counter.count_largest([["hello"]], tokens.CL100K) == 1 + 4 + 3
    assert "sk-secret" not in environment.values()


@pytest.mark.slow
def test_a_tokenizer_that_cannot_run_is_an_error_and_is_remembered(monkeypatch):
    with monkeypatch.context() as without_python:
        without_python.setattr(sys, "executable", "/nonexistent")
        with pytest.raises(token_counter.CountError):
            token_counter.count_largest([["hello"]], tokens.CL100K)
    assert token_counter.failed_tokenizers == {"cl100k_base"}
    token_counter.count_largest([["hello"]], tokens.CL100K)
    assert not token_counter.failed_tokenizers


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import time; time.sleep(60)"])
def test_a_counting_process_that_ends_or_hangs_is_an_error_and_is_removed(monkeypatch, program):
    started = []
    real = subprocess.Popen

    def start(words, **kwargs):
        started.append(real([words[0], "-c", program], **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(token_counter, "TIME_LIMIT_S", 0.5)
    with pytest.raises(token_counter.CountError):
        token_counter.count_largest([["hello " * 100_000]] * 3, tokens.CL100K)
    assert started[0].poll() is not None
    assert token_counter.failed_tokenizers == {"cl100k_base"}


def test_an_error_while_building_requests_is_not_a_counting_error():
    def broken():
        yield ["hello"]
        raise RuntimeError("the database went away")

    with pytest.raises(RuntimeError):
        token_counter.count_largest(broken(), tokens.CL100K)
    assert not token_counter.failed_tokenizers
