"""A preflight takes what a trial's call takes: a slot and a request of its endpoint's rates, and money of a budget.

That is two short transactions, before the call and after it; both lock the endpoint, then the experiment, then the
preflight. Whoever dies between them leaves a lease, which the sweep ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models.functions import Now

from evalsite.lib.text.number_format import format_money
from runs_app.engine.backoff import RetryPolicy
from runs_app.engine.counters import ZERO, BudgetDelta, EndpointDelta
from runs_app.engine.endpoint_state import EndpointFeedback, apply_feedback
from runs_app.engine.locked_counters import LockedCounters, lock_counters
from runs_app.engine.outcomes import attempt_from_failure, attempt_from_reply, conclude_failure
from runs_app.engine.rate_limiter import consume_tokens, find_obstacle
from runs_app.engine.requests import build_target
from runs_app.llm.calls import LOST, SILENT, CallFailure, CallReply, CallRequest
from runs_app.models import Attempt, Experiment, Preflight
from runs_app.models.preflights import PATIENCE
from runs_app.planning.reservations import set_reservations
from runs_app.pricing import costs, tokens

QUESTION = "Answer with the word ready."
MOST_TOKENS = 16  # Of the answer.
INPUT_TOKENS = tokens.by_bytes([QUESTION])
TIMEOUT_S = 30
LEASE = timedelta(seconds=3 * TIMEOUT_S)

Status = Preflight.Status
# Only an answer is proof of life, and only a refusal for good of the contrary.
PROOFS: dict[str, str] = {Attempt.Outcome.OK: Status.OK, Attempt.Outcome.PERMANENT: Status.DEAD}
Call = Callable[[CallRequest], CallReply]


@dataclass(frozen=True, slots=True)
class LockedPreflight:
    """A preflight whose rows are locked, and the books of its endpoint."""

    preflight: Preflight
    books: LockedCounters

    @property
    def held_usd(self) -> Decimal:
        """What is reserved for it: while it is made, or because nobody knows what it cost."""
        return self.preflight.reserved_usd or self.preflight.kept_usd or ZERO

    def settle(self, change: EndpointDelta, money: BudgetDelta) -> None:
        self.books.change = change
        if self.preflight.experiment_id is not None:
            self.books.deltas.by_experiment[self.preflight.experiment_id] = money
        self.books.settle()


def make_preflight(key: int, call: Call) -> str:
    """Make it, unless its endpoint has no slot or its budget no money for it. Returns its status after that.

    `call` raises CallFailure only.
    """
    request = begin_preflight(key)
    if request is not None:
        try:
            reply = call(request)
        except CallFailure as failure:
            _fail(key, failure)
        else:
            finish_preflight(key, attempt_from_reply(reply), allowance=reply.allowance)
    return Preflight.objects.values_list("status", flat=True).get(pk=key)


def _fail(key: int, failure: CallFailure) -> None:
    conclusion = conclude_failure(failure, attempts=1, yields=0, retry=RetryPolicy(max_attempts=1))
    finish_preflight(key, attempt_from_failure(failure), pause_s=conclusion.pause_s, allowance=conclusion.allowance)


# The two transactions -------------------------------------------------------------------------------------------------


def begin_preflight(key: int) -> CallRequest | None:
    """Take its slot and its money. None where there is none of them, which it then says, or somebody was quicker."""
    with transaction.atomic():
        opened = _open(key)
        if opened is None or opened.preflight.status != Status.WAITING:
            return None
        ceiling = costs.ceiling_per_call(opened.preflight.model.prices, INPUT_TOKENS, MOST_TOKENS)
        if why := _why_closed(opened) or _why_unpaid(opened.preflight, ceiling):
            _write(key, status=Status.UNVERIFIED, error=why, finished_at=Now())
            return None
        _start(opened, ZERO if opened.preflight.experiment_id is None else set_reservations(ceiling))
    return _request(opened.preflight)


def finish_preflight(key: int, call: dict[str, Any], *, pause_s: float | None = None, allowance: Any = None) -> None:
    """Write what came of it, by an attempt's columns, and give back its slot and what of its money was not spent.

    An answer that comes after the sweep has ended it completes its row: it may be billed all the same.
    """
    with transaction.atomic():
        opened = _open(key)
        if opened is None or not _may_end(opened.preflight, call["outcome"]):
            return
        cost = call.get("cost_usd")
        kept = opened.held_usd if cost is None else ZERO
        outcome = call.pop("outcome")
        _write(key, status=PROOFS.get(outcome, Status.UNVERIFIED), kept_usd=kept or None, finished_at=Now(), **call)
        change = _change_after(opened, outcome, call, pause_s, allowance)
        opened.settle(change, BudgetDelta(Decimal(cost or 0), kept - opened.held_usd))


def sweep_preflights() -> int:
    """End those whose lease is over. Returns how many. The database's clock decides."""
    ended = Preflight.objects.filter(status__in=[Status.WAITING, Status.RUNNING], lease_until__lt=Now())
    rows = list(ended.order_by("pk").values_list("pk", "status"))
    for key, status in rows:
        if status == Status.RUNNING:
            finish_preflight(key, {"outcome": Attempt.Outcome.LOST, "error_class": LOST, "error": SILENT})
        else:
            minutes = PATIENCE.seconds // 60
            _write(key, Status.WAITING, status=Status.UNVERIFIED, finished_at=Now(),
                   error=f"no worker took it within {minutes} minutes")  # fmt: skip
    return len(rows)


def _open(key: int) -> LockedPreflight | None:
    """None where it is gone, with its experiment."""
    found = Preflight.objects.select_related("model").filter(pk=key).first()
    books = lock_counters(found.endpoint_id or found.model.endpoint_id) if found else None
    if found is None or books is None:
        return None
    if found.experiment_id is not None:
        list(Experiment.objects.filter(pk=found.experiment_id).select_for_update(no_key=True).values_list("pk"))
    rows = Preflight.objects.select_for_update(of=("self",), no_key=True)
    row = rows.select_related("model__endpoint", "experiment").filter(pk=key).first()
    return LockedPreflight(row, books) if row else None


def _may_end(preflight: Preflight, outcome: str) -> bool:
    was_lost = preflight.error_class == LOST and outcome != Attempt.Outcome.LOST
    return preflight.status == Status.RUNNING or was_lost


def _write(key: int, only: str | None = None, **columns: Any) -> None:
    rows = Preflight.objects.filter(pk=key) if only is None else Preflight.objects.filter(pk=key, status=only)
    rows.update(**{"error": "", "error_class": "", "reserved_usd": 0, "lease_until": None} | columns)


def _start(opened: LockedPreflight, reserve: Decimal) -> None:
    books = opened.books
    _write(
        opened.preflight.pk,
        status=Status.RUNNING,
        endpoint=books.endpoint_id,
        reserved_usd=reserve,
        lease_until=Now() + LEASE,
        started_at=Now(),
    )
    throttle = consume_tokens(books.throttle, 1, INPUT_TOKENS + MOST_TOKENS)
    opened.settle(EndpointDelta(throttle, flying=1), BudgetDelta(reserved_usd=reserve))


def _change_after(
    opened: LockedPreflight, outcome: str, call: dict[str, Any], pause_s: float | None, allowance: Any
) -> EndpointDelta:
    """What it says of the endpoint; nothing where it was lost, or had been, and had given its slot back."""
    books = opened.books
    flying = -1 if opened.preflight.status == Status.RUNNING else 0
    if not flying or outcome == Attempt.Outcome.LOST:
        return EndpointDelta(books.throttle, flying=flying)
    answered, overloaded = int(outcome == Attempt.Outcome.OK), int(pause_s is not None)
    used = (call.get("input_tokens") or 0) + (call.get("output_tokens") or 0)
    lesson = EndpointFeedback(answered, overloaded, 0, used - INPUT_TOKENS - MOST_TOKENS, allowance)
    throttle = apply_feedback(books.gate, lesson, books.in_flight + flying)
    reason = call.get("error", "")[:200] if pause_s else None
    return EndpointDelta(throttle, answered, overloaded, pause_s or None, reason, flying=flying)


def _request(preflight: Preflight) -> CallRequest:
    target = build_target(preflight.model, timeout_s=TIMEOUT_S)
    return CallRequest(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        messages=[{"role": "user", "content": QUESTION}],
        parameters={"max_tokens": MOST_TOKENS},
        response_format=None,
        timeout_s=target.timeout_s,
        is_free=target.is_free,
        prices=target.prices,
    )


# Why none is made -----------------------------------------------------------------------------------------------------


def _why_closed(opened: LockedPreflight) -> str:
    """The endpoint takes no call now: why, and until when."""
    gate, endpoint = opened.books.gate, opened.preflight.model.endpoint
    if not endpoint.is_active:
        return f"the endpoint {endpoint} is out of use"
    if not gate.is_open and endpoint.paused_until:
        until = _clock(endpoint.paused_until.timestamp(), gate.now)
        return f"the endpoint {endpoint} is paused until {until}: {endpoint.pause_reason}"
    bound = find_obstacle(gate.throttle, gate.rates, gate.in_flight, day_ends(gate.now, endpoint.day_zone))
    if bound is None:
        return ""
    until = "" if bound.until is None else f" until {_clock(bound.until, gate.now)}"
    return f"the endpoint {endpoint} {bound.said}{until}"


def _why_unpaid(preflight: Preflight, ceiling: Decimal | None) -> str:
    """The budget of the experiment that it is for does not hold what it may cost."""
    experiment = preflight.experiment
    if experiment is None or experiment.max_usd is None:
        return ""
    if ceiling is None:
        return f"unknown price: model {preflight.model} has no price, and experiment {experiment} has a budget"
    left = experiment.max_usd - experiment.spent_usd - experiment.reserved_usd
    if set_reservations(ceiling) <= left:
        return ""
    return f"the budget of {experiment} has {format_money(left)} left, and it may cost {format_money(ceiling)}"


def day_ends(now: float, zone: str) -> float:
    """Midnight where the endpoint's day begins, in seconds since 1970."""
    today = datetime.fromtimestamp(now, ZoneInfo(zone))
    return (today.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)).timestamp()


def _clock(moment: float, now: float) -> str:
    """To the minute, which is over by then; with its date where that is not today's."""
    until = datetime.fromtimestamp(moment, UTC) + timedelta(seconds=59)
    is_today = until.date() == datetime.fromtimestamp(now, UTC).date()
    return f"{until:%H:%M} UTC" if is_today else f"{until:%Y-%m-%d %H:%M} UTC"
