"""Cached comparisons. A result is valid until a rating that enters it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max, Q, Sum
from django.http import QueryDict

from evalsite.lib.text.hashing import content_hash
from grading_app.comparison import disagreements
from grading_app.comparison.query import Question, QuestionForm
from grading_app.comparison.raters import Rater, queues_of
from grading_app.comparison.unit_counts import Frame, load_frame
from grading_app.models import RaterAssignment, Rating, Rubric
from grading_app.reports.cached_aggregates import Aggregate, Tell
from runs_app.models import Experiment

if TYPE_CHECKING:
    from grading_app.comparison.agreement_report import Compared

VERSION = 7  # Increase it when the same ratings are measured differently.
MOST_AT_ONCE = 20_000
"""The maximum number of answers that are compared while the page waits, about a second."""
MOST_RATINGS = 5_000
"""The maximum number of ratings by people, likewise. Each person is a rater and is compared with all others."""
KEPT = 20  # Comparisons of an experiment, with other choices of raters and roles; and as many lists of disagreements.
STEPS = ("adding up ratings", "measuring")


@dataclass(frozen=True)
class Roles:
    """The raters in detail: a judge, the people it is compared with, and two raters for the confusion matrix."""

    judge: Rater | None
    people: list[Rater]
    pair: tuple[Rater, Rater] | None

    @property
    def content(self) -> list[Any]:
        return [self.judge and self.judge.key, self.pair and [rater.key for rater in self.pair]]


def roles_of(question: Question, wanted: dict[str, str]) -> Roles:
    """Return the roles from the address, or by default the first judge or panel, and the first two raters.

    Without a judge or panel, the first rater that is not a person takes its place. Norms and adjudicated scores are no
    people: they are compared on their own.
    """
    known = {rater.key: rater for rater in question.raters}
    people = [rater for rater in question.raters if rater.kind == "person"]
    others = [rater for rater in question.raters if rater not in people]
    judges = [rater for rater in others if rater.kind in ("judge", "panel")] or others
    judge = known.get(wanted.get("judge", "")) or (judges[0] if judges else None)
    pair = [rater for key in ("first", "second") if (rater := known.get(wanted.get(key, "")))]
    pair = pair if len(set(pair)) == 2 else question.raters[:2]
    others_than_judge = [person for person in people if person != judge]
    return Roles(
        judge if others_than_judge else None, others_than_judge, (pair[0], pair[1]) if len(pair) == 2 else None
    )


def state_of_question(question: Question) -> str:
    """Return a text that changes whenever a rating that may count is added, removed or changed."""
    return content_hash([VERSION, state_of_ratings(question.experiment, queues_of(question.chosen)), question.content])


def state_of_ratings(experiment: Experiment, keys: list[int]) -> str:
    """Return a hash of all ratings of the experiment and of these queues. It reads counters, never the gradings."""
    answered = experiment.runs.generating().order_by("pk").values_list("pk", "n_done")
    graded = experiment.grade_conditions.order_by("pk").values_list("pk", "changes")
    rated = Rating.objects.filter(assignment__queue__in=keys).aggregate(n=Count("value"), last=Max("rated_at"))
    raters = RaterAssignment.objects.filter(queue__in=keys)
    excluded = raters.aggregate(n=Count("pk"), out=Count("pk", filter=Q(excluded_at__isnull=False)))
    return content_hash([experiment.pk, list(answered), list(graded), str(rated), sorted(excluded.items()), keys])


def compare(question: Question, roles: Roles, frame: Frame) -> Compared:
    from grading_app.comparison.agreement_report import Compared, measured  # numpy, which other pages do not need.
    from grading_app.statistics.ratings import tallied

    if not frame.lines:
        return Compared(0, 0, None)
    singles = {mean: [single.key for single in found] for mean, found in question.singles.items()}
    keys = [*(rater.key for rater in question.everyone), *(key for found in singles.values() for key in found)]
    given = {rater for said in frame.kinds.values() for rater in said}
    numbers = measured(
        tallied(frame.lines, frame.kinds, [key for key in keys if key in given]),
        raters=[rater.key for rater in question.raters],
        references=[rater.key for rater in question.references if rater.key in given],
        singles={mean: [key for key in found if key in given] for mean, found in singles.items()},
        humans=[rater.key for rater in question.raters if rater.kind == "person"],
        pair=(roles.pair[0].key, roles.pair[1].key) if roles.pair else None,
        judge=roles.judge.key if roles.judge else None,
        people=[rater.key for rater in roles.people],
        are_names=question.in_pairs,
        scale=question.scale,
    )
    return Compared(frame.units, frame.total, numbers)


@dataclass(frozen=True)
class ComparisonQuery:
    """A question with the roles in which its raters are shown."""

    question: Question
    roles: Roles


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


def _dump(question: Question, roles: Roles | None = None) -> str:
    """Return the query string from which `QuestionForm` and `roles_of` read this question, with every choice."""
    asked = QueryDict(mutable=True)
    asked["units"] = question.units
    asked.setlist("rater", [rater.key for rater in question.chosen])
    asked.update({name: str(value) for name, value in question.narrowed.items() if value})
    if question.as_shares:
        asked["scale"] = "share"
    if roles and roles.judge:
        asked["judge"] = roles.judge.key
    if roles and roles.pair:
        asked["first"], asked["second"] = (rater.key for rater in roles.pair)
    return asked.urlencode()


def _load(experiment: Experiment, address: str) -> ComparisonQuery | None:
    asked = QueryDict(address)
    question = QuestionForm(asked, experiment).question()
    return ComparisonQuery(question, roles_of(question, asked.dict())) if question else None


def _load_question(experiment: Experiment, address: str) -> Question | None:
    return QuestionForm(QueryDict(address), experiment).question()


def _compute(queries: Sequence[ComparisonQuery], tell: Tell) -> list[Compared]:
    return [_compare(query, tell) for query in queries]


def _compare(query: ComparisonQuery, tell: Tell) -> Compared:
    frame = load_frame(query.question)
    tell(STEPS[1])
    return compare(query.question, query.roles, frame)


def _value_type() -> Any:
    from grading_app.comparison.agreement_report import Compared

    return Compared


AGREEMENT: Aggregate[ComparisonQuery, Compared] = Aggregate(
    name="agreement",
    value_type=_value_type,
    dump=lambda query: _dump(query.question, query.roles),
    load=_load,
    fingerprint=lambda query: state_of_question(query.question),
    is_large=lambda queries: any(is_large(query.question) for query in queries),
    compute=_compute,
    version=VERSION,
    steps=STEPS,
    kept=KEPT,
)
DISAGREEMENTS: Aggregate[Question, int] = Aggregate(
    name="disagreements",
    value_type=lambda: int,
    dump=_dump,
    load=_load_question,
    fingerprint=state_of_question,
    is_large=lambda questions: any(map(is_large, questions)),
    compute=lambda questions, _tell: [disagreements.count(question) for question in questions],
    version=VERSION,
    steps=("putting disagreements in order",),
    kept=KEPT,
    write=disagreements.keep,
)
