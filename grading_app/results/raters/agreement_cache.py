"""Cached comparisons of raters. A result is valid until one of its ratings changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max, Q, Sum
from django.http import QueryDict

from evalsite.lib.text.hashing import hash_content
from grading_app.models import RaterAssignment, Rating, Rubric
from grading_app.results.cached_aggregates import Aggregate, StepReporter
from grading_app.results.raters import disagreements
from grading_app.results.raters.raters import Rater, list_queues
from grading_app.results.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.raters.unit_counts import UnitCounts, load_unit_counts
from runs_app.models import Experiment

if TYPE_CHECKING:
    from grading_app.results.raters.agreement_report import AgreementResult

VERSION = 9  # Increase it when the same ratings give another result, or when fields of the result change.
MAX_ANSWERS_PER_REQUEST = 20_000
"""The maximum number of answers that are compared while the page waits, about a second."""
MAX_RATINGS_PER_REQUEST = 5_000
"""The maximum number of ratings by people, likewise. Each person is a rater and is compared with all others."""
MAX_STORED = 20  # The number of comparisons, and of lists of disagreements, that are stored for an experiment.
STEPS = ("adding up ratings", "measuring")


@dataclass(frozen=True)
class RaterRoles:
    """The raters shown in detail: a judge, the people it is compared with, and the pair in the confusion matrix."""

    judge: Rater | None
    people: list[Rater]
    pair: tuple[Rater, Rater] | None


def assign_roles(selection: RatingSelection, parameters: Mapping[str, str]) -> RaterRoles:
    """Return the roles in the parameters, or by default the first judge or panel, and the first two raters.

    Without a judge or panel, the first rater that is not a person takes its place. Norms and adjudicated scores do not
    count as people, because they are compared on their own.
    """
    by_key = {rater.key: rater for rater in selection.raters}
    people = [rater for rater in selection.raters if rater.kind == "person"]
    non_people = [rater for rater in selection.raters if rater not in people]
    judges = [rater for rater in non_people if rater.kind in ("judge", "panel")] or non_people
    judge = by_key.get(parameters.get("judge", "")) or (judges[0] if judges else None)
    pair = [rater for key in ("first", "second") if (rater := by_key.get(parameters.get(key, "")))]
    pair = pair if len(set(pair)) == 2 else selection.raters[:2]
    people_without_judge = [person for person in people if person != judge]
    return RaterRoles(
        judge if people_without_judge else None, people_without_judge, (pair[0], pair[1]) if len(pair) == 2 else None
    )


def fingerprint_selection(selection: RatingSelection) -> str:
    """Return a text that changes whenever a relevant rating may have been added, removed or changed."""
    return hash_content(
        [VERSION, fingerprint_ratings(selection.experiment, list_queues(selection.chosen)), selection.key_parts]
    )


def fingerprint_ratings(experiment: Experiment, queues: list[int]) -> str:
    """Return a hash of all ratings of the experiment and of these queues. It reads counters, never gradings."""
    run_counts = experiment.answer_runs.order_by("pk").values_list("pk", "n_done")
    grade_counts = experiment.grade_conditions.order_by("pk").values_list("pk", "changes")
    rating_counts = Rating.objects.filter(assignment__queue__in=queues).aggregate(
        n=Count("value"), last=Max("rated_at")
    )
    raters = RaterAssignment.objects.filter(queue__in=queues)
    rater_counts = raters.aggregate(n=Count("pk"), out=Count("pk", filter=Q(excluded_at__isnull=False)))
    return hash_content(
        [experiment.pk, list(run_counts), list(grade_counts), str(rating_counts), sorted(rater_counts.items()), queues]
    )


def compare_raters(selection: RatingSelection, roles: RaterRoles, counts: UnitCounts) -> AgreementResult:
    from grading_app.results.raters.agreement_report import (
        AgreementResult,
        compute_agreement,
    )  # numpy, which other pages do not need.
    from grading_app.statistics.ratings import Ratings

    if not counts.counts:
        return AgreementResult(0, 0, None)
    singles = {mean: [single.key for single in single_raters] for mean, single_raters in selection.singles.items()}
    keys = [
        *(rater.key for rater in selection.all_raters),
        *(key for single_raters in singles.values() for key in single_raters),
    ]
    present = {rater for ratings in counts.patterns.values() for rater in ratings}
    report = compute_agreement(
        Ratings.from_counts(counts.counts, counts.patterns, [key for key in keys if key in present]),
        raters=[rater.key for rater in selection.raters],
        references=[rater.key for rater in selection.references if rater.key in present],
        singles={mean: [key for key in single_raters if key in present] for mean, single_raters in singles.items()},
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
    """Selected ratings with the roles of their raters."""

    selection: RatingSelection
    roles: RaterRoles


def is_large(selection: RatingSelection) -> bool:
    """Return True if the selection covers too many answers, or too many ratings by people, for one request.

    Answers are counted by the counters of runs. For pairs, the verdicts of judges count instead.
    """
    runs = selection.experiment.runs.none()
    if selection.in_pairs:
        runs = selection.experiment.runs.filter(condition__grade_condition__rubric__kind=Rubric.Kind.PAIRWISE)
    elif selection.covers_answers or any(rater.kind == "model" for rater in selection.chosen):
        filters = {name: key for name in ("wave", "condition") if (key := selection.filters.get(name))}
        runs = selection.experiment.answer_runs.filter(**filters)
    if (runs.aggregate(n=Sum("n_done"))["n"] or 0) > MAX_ANSWERS_PER_REQUEST:
        return True
    queues = list_queues(selection.chosen)
    ratings = Rating.objects.given().filter(assignment__queue__in=queues).order_by()
    # Counting stops at the limit.
    return bool(queues) and ratings[: MAX_RATINGS_PER_REQUEST + 1].count() > MAX_RATINGS_PER_REQUEST


def _dump(selection: RatingSelection, roles: RaterRoles | None = None) -> str:
    """Return the selection and the roles as a query string. `_load` reverses it."""
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
    selection = RatingSelectionForm(parameters, experiment).get_selection()
    return AgreementQuery(selection, assign_roles(selection, parameters.dict())) if selection else None


def _compute(queries: Sequence[AgreementQuery], report_step: StepReporter) -> list[AgreementResult]:
    results = []
    for query in queries:
        counts = load_unit_counts(query.selection)
        report_step(STEPS[1])
        results.append(compare_raters(query.selection, query.roles, counts))
    return results


def _import_result_type() -> Any:
    from grading_app.results.raters.agreement_report import AgreementResult

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
    max_rows=MAX_STORED,
)
DISAGREEMENTS: Aggregate[RatingSelection, int] = Aggregate(
    name="disagreements",
    value_type=lambda: int,
    dump=_dump,
    load=lambda experiment, address: RatingSelectionForm(QueryDict(address), experiment).get_selection(),
    fingerprint=fingerprint_selection,
    is_large=lambda selections: any(map(is_large, selections)),
    compute=lambda selections, _report_step: [disagreements.count_disagreements(selection) for selection in selections],
    version=VERSION,
    steps=("putting disagreements in order",),
    max_rows=MAX_STORED,
    write=disagreements.store_disagreements,
)
