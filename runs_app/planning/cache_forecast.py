"""A forecast of the trials that the response cache will answer, from other runs of the same conditions."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet
from django.db.models.functions import Right

from runs_app.cache_purge import list_purges
from runs_app.models import Run
from runs_app.planning.conditions import get_condition_hash
from runs_app.planning.design import Design

HASH_CHARS = 12  # Characters at the end of a condition's id.


def forecast_cache_hits(design: Design, wave_label: str = "") -> dict[str, int]:
    """Return the largest number of trials that another run has answered, by cell hash. Cells without any are left out.

    This reads counters, as the whole estimate does. The result is empty if the design does not read the cache (off,
    salted, or a later wave). Runs that started before the last purge of the cache do not count. Repetitions run in
    order. So if a run has more repetitions than this design, only the matching share counts.
    """
    if not _may_read_cache(design, wave_label):
        return {}
    hits: dict[str, int] = {}
    for hash12, run in _find_equal_runs(design):
        share = min(1.0, design.samples / run.experiment.samples)
        hits[hash12] = max(hits.get(hash12, 0), round(run.n_done * share))
    return hits


def _may_read_cache(design: Design, wave_label: str) -> bool:
    experiment = design.experiment
    if not experiment.cache or experiment.cache_buster:
        return False
    first = experiment.waves.order_by("number").first() if experiment.pk else None
    return first is None or first.label == wave_label


def _find_equal_runs(design: Design) -> Iterator[tuple[str, Run]]:
    """Yield the runs with cached answers for the same conditions, items and dimensions, each with its cell hash."""
    dimension_ids = {dimension.pk for dimension in design.dimensions}
    experiment = design.experiment
    hashes = [get_condition_hash(cell.condition_id) for cell in design.cells]
    runs = Run.objects.generating().annotate(hash12=Right("condition__condition_id", HASH_CHARS))
    equal_runs = runs.filter(
        hash12__in=hashes,
        n_done__gt=0,
        wave__epoch_offset=0,
        experiment__dataset=experiment.dataset_id,
        experiment__cache=True,
        experiment__cache_buster=False,
    )
    if experiment.pk:
        equal_runs = equal_runs.exclude(experiment=experiment.pk)
    if (purge := list_purges().first()) is not None:
        equal_runs = equal_runs.filter(started_at__gt=purge.at)
    with_rows: QuerySet[Run] = equal_runs.select_related("experiment", "condition")
    for run in with_rows.prefetch_related("experiment__dimensions"):
        if {dimension.pk for dimension in run.experiment.dimensions.all()} == dimension_ids:
            yield get_condition_hash(run.condition.condition_id), run
