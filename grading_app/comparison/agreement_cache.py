"""Cached comparisons. A result is valid until a rating that enters it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max, Q, Sum
from django.http import QueryDict

from evalsite.lib.text.hashing import content_hash
from grading_app.comparison import disagreements
from grading_app.comparison.raters import Rater, list_queues
from grading_app.comparison.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.comparison.unit_counts import UnitCounts, load_unit_counts
from grading_app.models import RaterAssignment, Rating, Rubric
from grading_app.reports.cached_aggregates import Aggregate, StepReporter
from runs_app.models import Experiment

if TYPE_CHECKING:
    from grading_app.comparison.agreement_report import AgreementResult

VERSION = 8  # Increase it when the same ratings are measured differently, or fields of the result change.
MOST_AT_ONCE = 20_000
"""The maximum number of answers that are compared while the page waits, about a second."""
MOST_RATINGS = 5_000
"""The maximum number of ratings by people, likewise. Each person is a rater and is compared with all others."""
KEPT = 20  # Comparisons of an experiment, with other choices of raters and roles; and as many lists of disagreements.
STEPS = ("adding up ratings", "measuring")


@dataclass(frozen=True)
class RaterRoles:
    """The raters in detail: a judge, the people it is compared with, and two raters for the confusion matrix."""

    judge: Rater | None
    people: list[Rater]
    pair: tuple[Rater, Rater] | None


def assign_roles(selection: RatingSelection, parameters: Mapping[str, str]) -> RaterRoles:
    """Return the roles in the parameters, or by default the first judge or panel, and the first two raters.

    Without a judge or panel, the first rater that is not a person takes its place. Norms and adjudicated scores are no
    people: they are compared on their own.
    """
    by_key = {rater.key: rater for rater in selection.raters}
    people = [rater for rater in selection.raters if rater.kind == "person"]
    others = [rater for rater in selection.raters if rater not in people]
    judges = [rater for rater in others if rater.kind in ("judge", "panel")] or others
    judge = by_key.get(parameters.get("judge", "")) or (judges[0] if judges else None)
    pair = [rater for key in ("first", "second") if (rater := by_key.get(parameters.get(key, "")))]
    pair = pair if len(set(pair)) == 2 else selection.raters[:2]
    others_than_judge = [person for person in people if person != judge]
    return RaterRoles(
        judge if others_than_judge else None, others_than_judge, (pair[0], pair[1]) if len(pair) == 2 else None
    )


def fingerprint_selection(selection: RatingSelection) -> str:
    """Return a text that changes whenever a rating that may count is added, removed or changed."""
    return content_hash(
        [VERSION, fingerprint_ratings(selection.experiment, list_queues(selection.chosen)), selection.key_parts]
    )


def fingerprint_ratings(experiment: Experiment, keys: list[int]) -> str:
    """Return a hash of all ratings of the experiment and of these queues. It reads counters, never the gradings."""
    answered = experiment.runs.generating().order_by("pk").values_list("pk", "n_done")
    graded = experiment.grade_conditions.order_by("pk").values_list("pk", "changes")
    rated = Rating.objects.filter(assignment__queue__in=keys).aggregate(n=Count("value"), last=Max("rated_at"))
    raters = RaterAssignment.objects.filter(queue__in=keys)
    excluded = raters.aggregate(n=Count("pk"), out=Count("pk", filter=Q(excluded_at__isnull=False)))
    return content_hash([experiment.pk, list(answered), list(graded), str(rated), sorted(excluded.items()), keys])


def compare_raters(selection: RatingSelection, roles: RaterRoles, counts: UnitCounts) -> AgreementResult:
    from grading_app.comparison.agreement_report import (
        AgreementResult,
        compute_agreement,
    )  # numpy, which other pages do not need.
    from grading_app.statistics.ratings import Ratings

    if not counts.counts:
        return AgreementResult(0, 0, None)
    singles = {mean: [single.key for single in found] for mean, found in selection.singles.items()}
    keys = [*(rater.key for rater in selection.all_raters), *(key for found in singles.values() for key in found)]
    present = {rater for ratings in counts.patterns.values() for rater in ratings}
    report = compute_agreement(
        Ratings.from_counts(counts.counts, counts.patterns, [key for key in keys if key in present]),
        raters=[rater.key for rater in selection.raters],
        references=[rater.key for rater in selection.references if rater.key in present],
        singles={mean: [key for key in found if key in present] for mean, found in singles.items()},
        humans=[rater.key for rater in selection.raters if rater.kind == "person"],
        pair=(roles.pair[0].key, roles.pair[1].key) if roles.pair else None,
        judge=roles.judge.key if roles.judge else None,
        people=[rater.key for rater in roles.people],
        are_names=selection.in_pairs,
        scale=selection.scale,
    )
    return AgreementResult(counts.units, counts.total, report)


@dataclass(frozen=True)
class AgreementQuery:
    """Selected ratings with the roles in which their raters are shown."""

    selection: RatingSelection
    roles: RaterRoles


def is_large(selection: RatingSelection) -> bool:
    """Return True if the selection covers too many answers, or too many ratings by people, for one request."""
    return _has_many_answers(selection) or _has_many_ratings(selection)


def _has_many_answers(selection: RatingSelection) -> bool:
    """Read from the counters of runs. For pairs the judges' verdicts are counted."""
    if selection.in_pairs:
        judging = selection.experiment.runs.filter(condition__grade_condition__rubric__kind=Rubric.Kind.PAIRWISE)
        return (judging.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE
    if not selection.covers_answers and not any(rater.kind == "model" for rater in selection.chosen):
        return False
    runs = selection.experiment.runs.generating()
    named = {"wave": selection.filters.get("wave"), "condition": selection.filters.get("condition")}
    chosen = runs.filter(**{name: key for name, key in named.items() if key})
    return (chosen.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_AT_ONCE


def _has_many_ratings(selection: RatingSelection) -> bool:
    """Count ratings by people, and stop counting at the limit."""
    queues = list_queues(selection.chosen)
    return bool(queues) and (
        Rating.objects.given().filter(assignment__queue__in=queues).order_by()[: MOST_RATINGS + 1].count()
        > MOST_RATINGS
    )


def _dump(selection: RatingSelection, roles: RaterRoles | None = None) -> str:
    """Return the query string with every choice. `_load` reads it again."""
    parameters = QueryDict(mutable=True)
    parameters["units"] = selection.units
    parameters.setlist("rater", [rater.key for rater in selection.chosen])
    parameters.update({name: str(value) for name, value in selection.filters.items() if value})
    if selection.as_shares:
        parameters["scale"] = "share"
    if roles and roles.judge:
        parameters["judge"] = roles.judge.key
    if roles and roles.pair:
        parameters["first"], parameters["second"] = (rater.key for rater in roles.pair)
    return parameters.urlencode()


def _load(experiment: Experiment, address: str) -> AgreementQuery | None:
    parameters = QueryDict(address)
    selection = RatingSelectionForm(parameters, experiment).selection()
    return AgreementQuery(selection, assign_roles(selection, parameters.dict())) if selection else None


def _load_selection(experiment: Experiment, address: str) -> RatingSelection | None:
    return RatingSelectionForm(QueryDict(address), experiment).selection()


def _compute(queries: Sequence[AgreementQuery], tell: StepReporter) -> list[AgreementResult]:
    return [_load_and_compare(query, tell) for query in queries]


def _load_and_compare(query: AgreementQuery, tell: StepReporter) -> AgreementResult:
    counts = load_unit_counts(query.selection)
    tell(STEPS[1])
    return compare_raters(query.selection, query.roles, counts)


def _import_result_type() -> Any:
    from grading_app.comparison.agreement_report import AgreementResult

    return AgreementResult


AGREEMENT: Aggregate[AgreementQuery, AgreementResult] = Aggregate(
    name="agreement",
    value_type=_import_result_type,
    dump=lambda query: _dump(query.selection, query.roles),
    load=_load,
    fingerprint=lambda query: fingerprint_selection(query.selection),
    is_large=lambda queries: any(is_large(query.selection) for query in queries),
    compute=_compute,
    version=VERSION,
    steps=STEPS,
    max_rows=KEPT,
)
DISAGREEMENTS: Aggregate[RatingSelection, int] = Aggregate(
    name="disagreements",
    value_type=lambda: int,
    dump=_dump,
    load=_load_selection,
    fingerprint=fingerprint_selection,
    is_large=lambda selections: any(map(is_large, selections)),
    compute=lambda selections, _tell: [disagreements.count_disagreements(selection) for selection in selections],
    version=VERSION,
    steps=("putting disagreements in order",),
    max_rows=KEPT,
    write=disagreements.store_disagreements,
)
