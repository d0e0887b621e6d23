"""Batch replies of providers with any content are parsed, and a custom id identifies its trial."""

import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.batches import anthropic_batches, openai_batches
from runs_app.batches.protocol import (
    MAX_POLL_S,
    Line,
    Phase,
    build_custom_id,
    compute_batch_size,
    compute_poll_interval_s,
    compute_retry_wait_s,
    parse_custom_id,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "id", "status", "processing_status", "request_counts", "errors", "data", "metadata", "output_file_id", "created_at",
    "error_file_id", "expires_at", "cancel_initiated_at", "custom_id", "response", "status_code", "body", "error",
    "code", "result", "type", "message",
]  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(KEYS), JSON), max_size=8)


@pytest.mark.slow
@pytest.mark.parametrize("form", [openai_batches, anthropic_batches])
@given(reply=OBJECTS)
def test_no_batch_reply_makes_parsing_fail(form, reply):
    state, line = form.parse_state(reply), form.parse_line(reply)
    assert len(state.provider_id) <= 200
    assert len(state.status_name) <= 40
    assert isinstance(state.phase, Phase)
    assert line.status is None or isinstance(line.status, int)
    assert (line.status is None) == (line.code in ("expired", "cancelled"))


@given(st.uuids(), st.integers(1, 10**15))
def test_a_custom_id_identifies_its_trial_in_its_own_batch_only(key, trial):
    name = build_custom_id(key, trial)
    assert len(name) <= 64
    assert parse_custom_id(name, key) == trial
    assert parse_custom_id(name, uuid.uuid4()) is None


@given(st.text(max_size=70))
def test_a_foreign_custom_id_identifies_no_trial(name):
    assert parse_custom_id(name, uuid.UUID(int=1)) is None


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ({"custom_id": "a", "response": {"status_code": 200, "body": {"x": 1}}}, Line("a", 200, b'{"x": 1}')),
        ({"custom_id": "a", "response": None, "error": {"code": "batch_expired"}}, Line("a", None, code="expired")),
        ({"custom_id": "a", "response": None, "error": {"code": "batch_cancelled"}}, Line("a", None, code="cancelled")),
        ({"custom_id": "a", "error": {"code": "odd"}}, Line("a", 500, b'{"error": {"code": "odd"}}')),
    ],
)
def test_openai_result_lines_are_parsed(reply, line):
    assert openai_batches.parse_line(reply) == line


@pytest.mark.parametrize(
    ("result", "status", "code"),
    [
        ({"type": "succeeded", "message": {}}, 200, ""),
        ({"type": "expired"}, None, "expired"),
        ({"type": "canceled"}, None, "cancelled"),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error"}}}, 529, ""),
        ({"type": "errored", "error": {"type": "invalid_request_error"}}, 400, ""),
        ({"type": "errored"}, 500, ""),
    ],
)
def test_anthropic_result_lines_are_parsed(result, status, code):
    line = anthropic_batches.parse_line({"custom_id": "a", "result": result})
    assert (line.custom_id, line.status, line.code) == ("a", status, code)


@given(
    pending=st.integers(0, 10**6),
    most=st.integers(1, 50_000),
    left=st.none() | st.decimals(-10, 10**4, places=4),
    each=st.decimals(0, 10, places=6),
)
def test_a_batch_never_exceeds_its_size_limits(pending, most, left, each):
    n = compute_batch_size(pending, most, left, each)
    assert 0 <= n <= min(pending, most)
    if left is not None and each > 0:
        assert n * each <= max(left, Decimal(0))
        assert n == min(pending, most) or (n + 1) * each > left


@given(st.floats(0, 10**7))
def test_the_poll_interval_grows_with_the_age_of_a_batch(age):
    assert 1 <= compute_poll_interval_s(age) <= compute_poll_interval_s(age + 60) <= MAX_POLL_S


@given(st.integers(1, 10**6), st.none() | st.floats(0, 10**5))
def test_retries_back_off_and_respect_retry_after(failures, asked_for):
    wait = compute_retry_wait_s(failures, asked_for)
    assert wait >= 1
    assert wait <= 600 if asked_for is None else wait >= asked_for
