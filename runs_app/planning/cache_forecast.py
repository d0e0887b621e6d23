"""How many trials of a design the response cache will answer: what the same conditions were asked elsewhere before."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet
from django.db.models.functions import Right

from runs_app.cache_purge import purges
from runs_app.models import Run
from runs_app.planning.conditions import condition_identity
from runs_app.planning.design import Design

HASH = 12  # Characters at the end of a condition's id.


def foreseen_hits(design: Design, wave_label: str = "") -> dict[str, int]:
    """By the hash of a cell, how many of its trials were answered elsewhere, at most; cells without any are left out.

    Read from counters, as all of an estimate. Nothing is foreseen where no cache is read (off, salted, a later wave),
    nor of runs that began before the cache was last emptied. Repetitions are asked from the first on, so of a run with
    more of them than this design it counts only their share.
    """
    if not _reads_cache(design, wave_label):
        return {}
    found: dict[str, int] = {}
    for hash12, run in _runs_alike(design):
        share = min(1.0, design.samples / run.experiment.samples)
        found[hash12] = max(found.get(hash12, 0), round(run.n_done * share))
    return found


def _reads_cache(design: Design, wave_label: str) -> bool:
    experiment = design.experiment
    if not experiment.cache or experiment.cache_buster:
        return False
    first = experiment.waves.order_by("number").first() if experiment.pk else None
    return first is None or first.label == wave_label


def _runs_alike(design: Design) -> Iterator[tuple[str, Run]]:
    """Runs of the same conditions on the same items and dimensions, whose answers the cache holds."""
    asked = {dimension.pk for dimension in design.dimensions}
    for run in _runs_of_cells(design):
        if {dimension.pk for dimension in run.experiment.dimensions.all()} == asked:
            yield condition_identity(run.condition.condition_id), run


def _runs_of_cells(design: Design) -> QuerySet[Run]:
    experiment = design.experiment
    hashes = [condition_identity(cell.condition_id) for cell in design.cells]
    runs = Run.objects.generating().annotate(hash12=Right("condition__condition_id", HASH))
    alike = runs.filter(
        hash12__in=hashes,
        n_done__gt=0,
        wave__epoch_offset=0,
        experiment__dataset=experiment.dataset_id,
        experiment__cache=True,
        experiment__cache_buster=False,
    )
    if experiment.pk:
        alike = alike.exclude(experiment=experiment.pk)
    if (emptied := purges().first()) is not None:
        alike = alike.filter(started_at__gt=emptied.at)
    found: QuerySet[Run] = alike.select_related("experiment", "condition").prefetch_related("experiment__dimensions")
    return found
