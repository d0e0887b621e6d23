"""Random outcomes of a call, and the result that a drain records for each."""

from decimal import Decimal

from hypothesis import strategies as st

from runs_app.engine import outcomes as outcomes_module
from runs_app.engine.outcomes import RetryPolicy
from runs_app.engine.recorder import Result
from runs_app.llm.calls import CallFailure, ErrorClass
from tests.factories.engine import build_reply

CEILING = Decimal("0.10000000")  # The reservation of a claim, and the maximum cost of a call.
MAX_ATTEMPTS = 3
LONG_S = 3600.0  # A wait that never ends by itself in a test.

answers = st.sampled_from(["0.1", "0.1", "0.02", None]).map(
    lambda cost: ("answer", None if cost is None else Decimal(cost))
)
failures = st.sampled_from(
    [ErrorClass.SERVER_ERROR, ErrorClass.TIMEOUT, ErrorClass.CONTENT_REFUSED, ErrorClass.RATE_LIMITED]
).map(lambda error_class: ("failure", error_class))
others = st.sampled_from([("released", None), ("refused schema", CEILING)])
outcomes = st.one_of(answers, answers, failures, others)


def build_outcome_result(claim, outcome):
    """Return the result of a claim, as a drain creates it."""
    kind, detail = outcome
    calls = []
    if kind == "failure":
        failure = _build_failure(detail)
        conclusion = outcomes_module.build_failure_outcome(
            failure, attempts=claim.attempts, yields=claim.yields, retry=RetryPolicy(MAX_ATTEMPTS)
        )
        calls.append(outcomes_module.build_attempt_from_failure(failure))
    elif kind == "released":
        conclusion = outcomes_module.build_release_outcome()
        calls.append({"outcome": "released"})
    else:
        if kind == "refused schema":
            refusal = CallFailure(ErrorClass.RESPONSE_FORMAT_UNSUPPORTED, "no schemas", http_status=400)
            calls.append(outcomes_module.build_attempt_from_failure(refusal))
        answer = build_reply(cost_usd=detail)
        conclusion = outcomes_module.build_answer_outcome(answer, None)
        calls.append(outcomes_module.build_attempt_from_reply(answer))
    return Result(
        claim,
        conclusion.status,
        trial=conclusion.trial,
        calls=[call | {"call": number} for number, call in enumerate(calls)],
        released=conclusion.released,
        wait_s=LONG_S if conclusion.wait_s is not None else None,
        pause_s=LONG_S if conclusion.pause_s is not None else None,
    )


def _build_failure(error_class):
    status = {ErrorClass.TIMEOUT: None, ErrorClass.RATE_LIMITED: 429, ErrorClass.CONTENT_REFUSED: 400}
    return CallFailure(error_class, "it failed", http_status=status.get(error_class, 500))
