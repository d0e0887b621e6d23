"""Unit tests of the failure table: error classes of statuses and bodies, retry delays, and storable text."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runs_app.llm import failures
from runs_app.llm.calls import ErrorClass, Kind
from runs_app.llm.failures import (
    classify,
    clean_message,
    find_reported_error,
    read_message,
    read_retry_after_s,
    replace_unstorable,
)


@pytest.mark.parametrize(
    ("status", "body", "has_format", "error_class"),
    [
        (429, "insufficient_quota", False, ErrorClass.QUOTA_EXHAUSTED),
        (429, "You exceeded your current quota", False, ErrorClass.RATE_LIMITED),
        (400, "code: content_policy_violation", False, ErrorClass.CONTENT_REFUSED),
        (400, "Azure OpenAI's content management policy", False, ErrorClass.CONTENT_REFUSED),
        (403, "requires moderation and your input was flagged", False, ErrorClass.CONTENT_REFUSED),
        (400, "Input image data may contain inappropriate content.", False, ErrorClass.CONTENT_REFUSED),
        (400, "Invalid parameter: 'response_format'", True, ErrorClass.RESPONSE_FORMAT_UNSUPPORTED),
        (400, "output_format: Extra inputs are not permitted", True, ErrorClass.RESPONSE_FORMAT_UNSUPPORTED),
        (404, "No endpoints found that support json_schema", True, ErrorClass.RESPONSE_FORMAT_UNSUPPORTED),
        (422, "structured outputs are not supported", True, ErrorClass.RESPONSE_FORMAT_UNSUPPORTED),
        (400, "Invalid parameter: 'response_format'", False, ErrorClass.BAD_REQUEST),
        (400, "maximum context length is 4096 tokens", False, ErrorClass.CONTEXT_TOO_LONG),
        (400, "prompt is too long: 210000 tokens > 200000", False, ErrorClass.CONTEXT_TOO_LONG),
        (400, "Your credit balance is too low", False, ErrorClass.PAYMENT_REQUIRED),
        (402, "Insufficient credits", False, ErrorClass.PAYMENT_REQUIRED),
        (500, '{"type":"overloaded_error"}', False, ErrorClass.OVERLOADED),
        (500, "oops", False, ErrorClass.SERVER_ERROR),
        (501, "oops", False, ErrorClass.SERVER_ERROR),
        (504, "", False, ErrorClass.TIMEOUT),
        (418, "", False, ErrorClass.BAD_REQUEST),
        (302, "", False, ErrorClass.NOT_ALLOWED),
    ],
)
def test_status_and_body_determine_the_error_class(
    status: int, body: str, has_format: bool, error_class: ErrorClass
) -> None:
    assert classify(status, body, has_format) == error_class


@given(st.integers(300, 599), st.text(max_size=60), st.booleans())
def test_every_status_has_an_error_class_and_only_endpoint_failures_release_the_trial(
    status: int, body: str, has_format: bool
) -> None:
    kind = classify(status, body, has_format).kind
    if status == 429:
        assert kind == Kind.ENDPOINT
    if status in (400, 401, 403, 404, 422):
        assert kind == Kind.PERMANENT
    if kind == Kind.ENDPOINT:
        assert status in (429, 498) or status >= 500


def test_every_error_class_has_a_kind() -> None:
    kinds = {error_class: error_class.kind for error_class in ErrorClass}
    assert {name for name, kind in kinds.items() if kind == Kind.ENDPOINT} == {
        "rate_limited",
        "quota_exhausted",
        "overloaded",
        "unreachable",
    }
    assert {name for name, kind in kinds.items() if kind == Kind.TRANSIENT} == {
        "batch_expired",
        "duplicate_in_flight",
        "server_error",
        "timeout",
        "connection",
        "empty_answer",
        "unreadable_answer",
        "malformed_reply",
        "soft_failure",
        "internal_error",
        "response_format_unsupported",
    }


NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "12"}, "", 12.0),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": "-3"}, "", 0.0),
        ({"retry-after": "9999999"}, "", 86_400.0),
        ({"retry-after": "inf"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after-ms": "250", "retry-after": "1"}, "", 0.25),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, "", 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, "", 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 13:00:30 +0100"}, "", 30.0),
        ({}, '{"retryDelay": "17s"}', 17.0),
        ({}, '{"retryDelay": "1.2.3s"}', None),
        ({}, "", None),
    ],
)
def test_the_retry_delay_is_read_in_every_format(headers: dict[str, str], body: str, seconds: float | None) -> None:
    assert read_retry_after_s(headers, body, NOW) == seconds


@given(st.text(), st.text(alphabet=st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=8), st.text())
@example("", "00000000", "")
def test_a_stored_message_is_short_and_never_contains_the_key(before: str, key: str, after: str) -> None:
    message = clean_message(before + key + after, (key,))
    assert len(message) <= 500
    if key not in "[key]…" and key not in replace_unstorable(before.replace(key, "")) + replace_unstorable(
        after.replace(key, "")
    ):
        assert key not in message


def test_only_the_beginning_of_a_huge_body_is_read_and_no_partial_key_remains(monkeypatch) -> None:
    """Reading 10 MB took seconds, during which a worker renewed no lease."""
    lengths_read = []

    class Reader:
        def sub(self, _replacement: str, text: str) -> str:
            lengths_read.append(len(text))
            return failures._SECRETS.sub("[key]", text)

    monkeypatch.setattr(failures, "_URL", Reader())
    huge = "\x00\xff" * 5_000_000
    assert len(clean_message(huge)) == 500
    assert max(lengths_read) <= failures.MAX_READ
    padding = " " * (failures.MAX_READ - 12)
    assert clean_message(f"{padding}the sk-abcdefgh12345678 {padding}") == "the"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefgh12345678",
        "Bearer abcdefgh12345678",
        "AIzaabcdefgh12345678abcdefgh",
        "hf_abcdefgh12345678",
        "https://x.example/v1?key=abcdefgh12345678",
        "https://user:abcdefgh12345678@x.example/v1",
        "api_key=abcdefgh12345678",
        '"api_key": "abcdefgh12345678"',
    ],
)
def test_text_that_looks_like_a_key_is_not_stored(secret: str) -> None:
    message = clean_message(f"Error: bad request to {secret} was refused")
    assert "abcdefgh" not in message
    assert message.startswith("Error: bad request to ")
    assert message.endswith("was refused")


@given(st.text(alphabet=st.characters(), max_size=60))
@example("a\0b")
@example("\ud800")
@example("😀\udc00é")
def test_only_unstorable_characters_are_replaced(text: str) -> None:
    storable = replace_unstorable(text)
    assert "\0" not in storable
    assert storable.encode("utf-8").decode() == storable
    if "\0" not in text and text.isprintable():
        assert storable == text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "no", "code": "x"}}', "no"),
        ('{"error": "model not found"}', "model not found"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('[{"error": {"message": "google"}}]', "google"),
        ('{"error": {"message": "outer", "metadata": {"raw": "inner"}}}', "outer: inner"),
        ("plain words", "plain words"),
        ('{"error": {}}', '{"error": {}}'),
    ],
)
def test_an_error_message_is_found_in_every_format(body: str, message: str) -> None:
    assert read_message(body) == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["error", "message", "code", "choices"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["error", "choices", "id"]), json_values))
def test_any_reply_can_be_checked_for_an_error(payload: dict[str, object]) -> None:
    reported = find_reported_error(payload)
    assert reported is None or reported[0] is None or 400 <= reported[0] <= 599
    assert isinstance(read_message(json.dumps(payload)), str)
