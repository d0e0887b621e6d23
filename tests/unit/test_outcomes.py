"""The effect of a call's outcome on its trial."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.rating_scale import RatingScale
from runs_app.engine import outcomes
from runs_app.engine.outcomes import RetryPolicy
from runs_app.llm.calls import CallFailure, ErrorClass, Kind
from tests.factories.engine import build_reply

SEVEN = RatingScale(1, 7)


def build_outcome(error_class, **fields):
    claim = {"attempts": 1, "yields": 0, "retry": RetryPolicy(3)} | fields
    return outcomes.build_failure_outcome(CallFailure(error_class, "no"), **claim)


@pytest.mark.parametrize("error_class", [one for one in ErrorClass if one.kind is Kind.PERMANENT])
def test_a_permanent_failure_ends_its_trial_at_the_first_attempt(error_class):
    assert build_outcome(error_class).status == "failed"


REFUSED_SCHEMA = ErrorClass.RESPONSE_FORMAT_UNSUPPORTED
SPENDS_NOTHING = (REFUSED_SCHEMA, ErrorClass.DUPLICATE_IN_FLIGHT)


@pytest.mark.parametrize(
    "error_class", [one for one in ErrorClass if one.kind is Kind.TRANSIENT and one not in SPENDS_NOTHING]
)
def test_a_transient_failure_is_retried_until_the_last_attempt(error_class):
    outcome = build_outcome(error_class)
    assert (outcome.status, outcome.released) == ("pending", False)
    assert outcome.wait_s > 0
    assert build_outcome(error_class, attempts=3).status == "failed"


def test_a_rejected_schema_uses_no_attempt_up_to_a_limit():
    outcome = build_outcome(REFUSED_SCHEMA, attempts=3)
    assert (outcome.status, outcome.released) == ("pending", True)
    assert build_outcome(REFUSED_SCHEMA, attempts=3, yields=outcomes.MAX_YIELDS).status == "failed"


@given(st.integers(0, 10_000))
def test_waiting_for_an_equal_request_uses_no_attempt(yields):
    outcome = build_outcome(ErrorClass.DUPLICATE_IN_FLIGHT, attempts=3, yields=yields)
    assert (outcome.status, outcome.released, outcome.pause_s) == ("pending", True, None)
    assert 0 < outcome.wait_s <= outcomes.MAX_POLL_S


@pytest.mark.parametrize("attempts", [1, 20])
@pytest.mark.parametrize("yields", [0, 10_000])
def test_a_call_without_a_connection_never_uses_an_attempt(attempts, yields):
    outcome = build_outcome(ErrorClass.UNREACHABLE, attempts=attempts, yields=yields)
    assert (outcome.status, outcome.released, outcome.pause_s) == ("pending", True, None)


OVERLOADS = [one for one in ErrorClass if one.kind is Kind.ENDPOINT and one != ErrorClass.UNREACHABLE]


@pytest.mark.parametrize("error_class", OVERLOADS)
def test_an_overload_pauses_the_endpoint_and_uses_no_attempt_up_to_a_limit(error_class):
    outcome = build_outcome(error_class, attempts=3)
    assert (outcome.status, outcome.released) == ("pending", True)
    assert outcome.pause_s > 0
    assert build_outcome(error_class, attempts=3, yields=outcomes.MAX_YIELDS).status == "failed"


@given(st.floats(0, 600))
def test_a_retry_after_delays_the_trial_and_its_endpoint(seconds):
    failure = CallFailure(ErrorClass.RATE_LIMITED, "slow down", retry_after_s=seconds)
    conclusion = outcomes.build_failure_outcome(failure, attempts=1, yields=0, retry=RetryPolicy(3))
    assert conclusion.wait_s >= seconds
    assert conclusion.pause_s == seconds


@given(st.floats(900, 10**9))
def test_a_retry_after_of_days_is_limited_to_a_quarter_of_an_hour(seconds):
    failure = CallFailure(ErrorClass.RATE_LIMITED, "come back next week", retry_after_s=seconds)
    conclusion = outcomes.build_failure_outcome(failure, attempts=1, yields=0, retry=RetryPolicy(3))
    assert conclusion.pause_s == 900
    assert 900 <= conclusion.wait_s <= 990


def test_an_unreadable_rating_is_a_result_and_not_an_error():
    conclusion = outcomes.build_answer_outcome(build_reply("I would rather not say."), SEVEN)
    assert conclusion.status == "done"
    assert (conclusion.trial["rating"], conclusion.trial["parse_error"]) == (None, "no_rating_found")


def test_a_rating_is_recorded_with_its_reasoning_and_parsing_step():
    conclusion = outcomes.build_answer_outcome(build_reply('{"rating": 6, "reasoning": "bright"}'), SEVEN)
    assert conclusion.trial["rating"] == 6
    assert (conclusion.trial["rating_step"], conclusion.trial["reasoning"]) == ("json", "bright")


def test_a_truncated_answer_is_marked():
    assert outcomes.build_answer_outcome(build_reply("so far", finish_reason="length"), None).trial["truncated"] is True


@pytest.mark.parametrize(
    ("error_class", "http_status", "cost"),
    [("server_error", 500, 0), ("timeout", None, None), ("connection", None, None), ("missing_key", None, 0)],
)
def test_a_failed_call_costs_nothing_only_if_that_is_certain(error_class, http_status, cost):
    failure = CallFailure(ErrorClass(error_class), "no", http_status=http_status)
    assert outcomes.build_attempt_from_failure(failure)["cost_usd"] == cost
