"""Comparisons that take too long for a request: a page enqueues them, a worker computes them, a row holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q, Sum
from django.http import QueryDict
from django.utils import timezone

from evalsite.lib.text.hashing import content_hash
from grading_app.comparison import disagreements
from grading_app.comparison.comparison_cache import VERSION, Compared, Roles, compare, roles_of, state_of_question
from grading_app.comparison.query import Question, QuestionForm
from grading_app.comparison.raters import queues_of
from grading_app.comparison.unit_counts import load_frame
from grading_app.models import Comparison, Rating, Rubric, Split
from grading_app.reports.background_results import WAITING, claimed, tell, worked

WORK_OUT = "grading_app.tasks.work_out_comparison"
MOST_AT_ONCE = 20_000
"""Of so many answers what raters said is compared while the page waits: about a second."""
MOST_RATINGS = 5_000
"""By people, likewise: each of them is a rater of their own, and is held against all others."""
KEPT = 10  # comparisons that are stored for each experiment, the most recent ones
STEPS = (WAITING, "adding up ratings", "measuring", "putting disagreements in order")


@dataclass(frozen=True)
class Standing:
    """The progress of a comparison.

    compared: the last result, None without one. is_fresh: True if the result covers all present ratings. is_under_way:
    True if a worker was asked for a newer result.
    """

    row: Comparison
    compared: Compared | None
    is_fresh: bool
    is_under_way: bool

    @property
    def step(self) -> str:
        """A text such as '2 of 4: adding up ratings'."""
        known = self.row.step in STEPS
        return f"{STEPS.index(self.row.step) + 1} of {len(STEPS)}: {self.row.step}" if known else ""


def is_large(question: Question) -> bool:
    """Return True if the question covers too many answers, or too many ratings by people, for one request."""
    return _has_many_answers(question) or _has_many_ratings(question)


def _has_many_answers(question: Question) -> bool:
    """Read from the counters of runs. For pairs the judges' verdicts are counted."""
    if question.in_pairs:
        judging = question.experiment.runs.filter(condition__grade_condition__rubric__kind=Rubric.Kind.PAIRWISE)
        return (judging.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE
    if not question.on_answers and not any(rater.kind == "model" for rater in question.chosen):
        return False
    runs = question.experiment.runs.generating()
    named = {"wave": question.narrowed.get("wave"), "condition": question.narrowed.get("condition")}
    chosen = runs.filter(**{name: key for name, key in named.items() if key})
    return (chosen.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE


def _has_many_ratings(question: Question) -> bool:
    """Count ratings by people, and stop counting at the limit."""
    queues = queues_of(question.chosen)
    return bool(queues) and (
        Rating.objects.given().filter(assignment__queue__in=queues).order_by()[: MOST_RATINGS + 1].count()
        > MOST_RATINGS
    )


def standing_of(question: Question, roles: Roles) -> Standing:
    """Return the stored progress and result. Enqueue a task if the result is missing or out of date."""
    chosen = [rater.key for rater in question.chosen]
    key = content_hash([VERSION, question.units, chosen, dict(question.narrowed), question.as_shares])
    row, _ = Comparison.objects.get_or_create(experiment=question.experiment, question=key)
    state, kept = state_of_question(question), row.results.get(_key(roles))
    is_fresh = kept is not None and row.state == state
    if not is_fresh:
        _ask(row, _address(question, roles), at_once=kept is None and not row.problem)
        row.refresh_from_db(fields=["asked_at", "step", "problem"])
    return Standing(row, _read(kept) if kept else None, is_fresh, bool(row.step))


def _key(roles: Roles) -> str:
    return content_hash(roles.content)[:16]


def _ask(row: Comparison, address: str, *, at_once: bool) -> None:
    from django_q.tasks import async_task

    if claimed(Comparison.objects.filter(pk=row.pk), at_once=Q(pk=row.pk) if at_once else Q(pk=None)):
        async_task(WORK_OUT, row.pk, address)


def _address(question: Question, roles: Roles) -> str:
    """Return the query string from which `QuestionForm` and `roles_of` read this question, with every choice."""
    asked = QueryDict(mutable=True)
    asked["units"] = question.units
    asked.setlist("rater", [rater.key for rater in question.chosen])
    asked.update({name: str(value) for name, value in question.narrowed.items() if value})
    if question.as_shares:
        asked["scale"] = "share"
    if roles.judge:
        asked["judge"] = roles.judge.key
    if roles.pair:
        asked["first"], asked["second"] = (rater.key for rater in roles.pair)
    return asked.urlencode()


def work_out(pk: int, address: str) -> None:
    """Compute the comparison and the order of disagreements, and store both.

    Ratings that arrive during the work outdate the result.
    """
    row = Comparison.objects.select_related("experiment").filter(pk=pk).first()
    if row is None:
        return
    worked(row, lambda: _work_out(row, address))
    _forget(row)


def _work_out(row: Comparison, address: str) -> str:
    """Compute and store the comparison. Return the reason if it cannot be computed, or else an empty text."""
    read_at, asked = timezone.now(), QueryDict(address)
    question = QuestionForm(asked, row.experiment).question()
    if question is None:
        return "a rater, wave or condition that was chosen is not there any more"
    roles, state = roles_of(question, asked.dict()), state_of_question(question)
    tell(row, STEPS[1])
    frame = load_frame(question)
    tell(row, STEPS[2])
    result = _written(compare(question, roles, frame))
    tell(row, STEPS[3])
    with transaction.atomic():
        known = Comparison.objects.select_for_update().get(pk=row.pk)
        if known.state != state:
            known.results, known.n_splits = {}, disagreements.keep(question, row)
        known.results[_key(roles)] = result
        known.state, known.computed_at = state, read_at
        known.save(update_fields=["results", "n_splits", "state", "computed_at"])
    return ""


def _forget(row: Comparison) -> None:
    """Delete all but the last KEPT comparisons of the experiment, because each may hold a row for every answer."""
    ended = Comparison.objects.filter(experiment=row.experiment, computed_at__isnull=False, step="")
    for old in ended.order_by("-ended_at").values_list("pk", flat=True)[KEPT:]:
        Split.objects.filter(comparison=old)._raw_delete(using="default")
        Comparison.objects.filter(pk=old).delete()


def _written(compared: Compared) -> dict[str, Any]:
    from pydantic import TypeAdapter

    from grading_app.comparison.agreement_report import Measured

    measured = TypeAdapter(Measured).dump_python(compared.measured, mode="json") if compared.measured else None
    return {"units": compared.units, "total": compared.total, "measured": measured}


def _read(kept: dict[str, Any]) -> Compared:
    from pydantic import TypeAdapter

    from grading_app.comparison.agreement_report import Measured

    measured = TypeAdapter(Measured).validate_python(kept["measured"]) if kept["measured"] else None
    return Compared(kept["units"], kept["total"], measured)
