"""Selections of trials by what graders and conditions make of them, for the list of trials."""

from __future__ import annotations

from django.db.models import Exists, F, Max, Min, OuterRef, Q

from grading_app.models import Grading, Rating
from grading_app.reports.score_matrix import list_measures
from grading_app.reports.stored_scores import get_item_scores
from grading_app.statistics import item_order
from runs_app.models import Experiment


def select_disagreement() -> Q:
    """Return the answers that two raters scored differently: judges and people by one rubric, or people of one queue.

    Rules, panels and adjudications are no raters. Scores by different rubrics have different scales.
    """
    gradings = Grading.objects.filter(
        trial=OuterRef("pk"), condition__kind__in=("judge", "person"), score__isnull=False
    ).order_by()
    ratings = Rating.objects.filter(
        trial=OuterRef("pk"), rival=None, kind=Rating.Kind.ITEM, value__isnull=False, assignment__excluded_at=None
    ).order_by()
    by_rubric = gradings.values("condition__rubric").annotate(low=Min("score"), high=Max("score"))
    by_queue = ratings.values("assignment__queue", "dimension", "criterion").annotate(
        low=Min("value"), high=Max("value")
    )
    return Q(Exists(by_rubric.filter(low__lt=F("high")))) | Q(Exists(by_queue.filter(low__lt=F("high"))))


def items_that_differ(experiment: Experiment, key: str = "") -> list[int] | None:
    """Return the items whose mean scores differ between conditions, by the measure with this key, else the first one.

    Return None while a worker computes the scores of a large experiment for the first time.
    """
    measures = list_measures(experiment)
    measure = next((one for one in measures if one.key == key or not key), None)
    if measure is None:
        return []
    stored = get_item_scores(experiment, measure).value
    if stored is None:
        return None
    scores = stored.scores
    return [int(item) for item in scores.items[item_order.differs(scores)]]
