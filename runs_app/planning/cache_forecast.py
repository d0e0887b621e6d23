"""A forecast of how many trials of a design the response cache will answer, from runs of the same conditions."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet
from django.db.models.functions import Right

from runs_app.cache_purge import list_purges
from runs_app.models import Run
from runs_app.planning.conditions import condition_identity
from runs_app.planning.design import Design

HASH = 12  # Characters at the end of a condition's id.


def forecast_cache_hits(design: Design, wave_label: str = "") -> dict[str, int]:
    """Return by cell hash the most trials that other runs have answered. Cells without any are left out.

    Reads counters, like the whole estimate. The result is empty if the design does not read the cache (off, salted, or
    a later wave). Runs that began before the cache was last emptied do not count. Repetitions are asked in order. So if
    a run has more repetitions than this design, only the matching share counts.
    """
    if not _may_read_cache(design, wave_label):
        return {}
    found: dict[str, int] = {}
    for hash12, run in _find_equal_runs(design):
        share = min(1.0, design.samples / run.experiment.samples)
        found[hash12] = max(found.get(hash12, 0), round(run.n_done * share))
    return found


def _may_read_cache(design: Design, wave_label: str) -> bool:
    experiment = design.experiment
    if not experiment.cache or experiment.cache_buster:
        return False
    first = experiment.waves.order_by("number").first() if experiment.pk else None
    return first is None or first.label == wave_label


def _find_equal_runs(design: Design) -> Iterator[tuple[str, Run]]:
    """Yield the runs of the same conditions on the same items and dimensions, whose answers are in the cache."""
    dimension_ids = {dimension.pk for dimension in design.dimensions}
    for run in _select_runs_of_cells(design):
        if {dimension.pk for dimension in run.experiment.dimensions.all()} == dimension_ids:
            yield condition_identity(run.condition.condition_id), run


def _select_runs_of_cells(design: Design) -> QuerySet[Run]:
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
    if (emptied := list_purges().first()) is not None:
        alike = alike.filter(started_at__gt=emptied.at)
    found: QuerySet[Run] = alike.select_related("experiment", "condition").prefetch_related("experiment__dimensions")
    return found
