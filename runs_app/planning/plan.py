"""Planning: the rows of a design. It creates conditions, a wave, runs and one row for each trial.

Planning again adds only the missing rows. The lock order is experiment, samplers and dimensions, run, trials. A pilot
is a few trials of a design, which run first. The full launch does not repeat them.

A cell of the design is a combination of model, prompt and sampler. Its condition is the row that stores a copy of their
content. Judges and rubric writers have conditions and runs, too, but no cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connection, transaction
from django.db.models import Max

from evalsite.lib.history import Actor
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.number_format import format_count
from runs_app.engine.claim_order import make_place_sql
from runs_app.models import Answer, Condition, Experiment, Run, Wave
from runs_app.planning import points
from runs_app.planning.design import Cell, Design, get_condition_hash
from runs_app.planning.work import PlanError, add_trials, get_or_create_run

PILOT_TRIALS = 20  # Enough to cover each part of a typical design, at almost no cost.

ITEMS = """(SELECT id, key FROM datasets_app_item WHERE dataset_id = %(dataset)s AND NOT excluded
    AND (%(items)s::bigint[] IS NULL OR id = ANY(%(items)s))) AS item"""
"""SQL for the active items of the dataset, or those of them that the design asks."""

# An item repeats only after all other items of the dataset. The order depends only on names, so a larger pilot keeps
# the trials of a smaller one. It is the same for all conditions, so a pilot compares them on common items.
MISSING = f"""(
    (SELECT item, dimension FROM (
        SELECT item.id AS item, dimension.id AS dimension, md5(item.key) AS draw,
            row_number() OVER (
                PARTITION BY item.id ORDER BY md5(concat_ws('/', item.key, dimension.name))
            ) AS turn
        FROM {ITEMS}
        CROSS JOIN unnest(%(dimensions)s::bigint[], %(names)s::text[]) AS dimension (id, name)
    ) AS question ORDER BY turn, draw LIMIT %(share)s)
    EXCEPT
    SELECT item_id, dimension_id FROM runs_app_trial WHERE run_id = %(run)s AND sample_idx = 0
    ORDER BY 1, 2
) AS missing
"""  # noqa: S608 - the text above
INSERT_PILOT = f"""INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, place)
SELECT %(run)s, 0, missing.*, {make_place_sql("missing.item", "0")} FROM {MISSING}"""  # noqa: S608 - the text above
COUNT_MISSING = f"SELECT count(*) FROM {MISSING}"  # noqa: S608 - the text above


def share_pilot(design: Design, pilot: int) -> list[int]:
    """Return the number of a pilot's trials for each cell of the design. The numbers differ by at most one.

    The cells' hashes decide which cells get one trial more, so that no model is left out because of its name.
    """
    hashes = [get_condition_hash(cell.condition_id) for cell in design.cells]
    each, more = divmod(pilot, max(1, len(hashes)))
    shares = [min(each, design.questions)] * len(hashes)
    for at in sorted(range(len(hashes)), key=hashes.__getitem__)[:more]:
        shares[at] = min(each + 1, design.questions)
    return shares


def insert_share(design: Design, share: int, run: Run) -> int:
    """Insert those of a run's first `share` trials that are missing. Return their number."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT_PILOT, _build_parameters(design, run, share))
        return int(cursor.rowcount)


def count_missing(design: Design, run: Run, share: int) -> int:
    """Return how many of a run's first `share` trials are missing."""
    return int(fetch_rows(COUNT_MISSING, _build_parameters(design, run, share))[0][0])


def _build_parameters(design: Design, run: Run, share: int) -> dict[str, Any]:
    return {
        "run": run.pk,
        "shuffle": design.experiment.shuffle,
        "dataset": design.experiment.dataset_id,
        "dimensions": [dimension.pk for dimension in design.dimensions] or [None],
        "names": [dimension.name for dimension in design.dimensions] or [None],
        "share": share,
        "items": design.dev_item_ids,
    }


# EXCEPT instead of ON CONFLICT: no other process adds trials, because of the experiment's row lock. One scan of the
# existing rows is cheaper than a speculative insertion for each row. EXCEPT also treats NULL dimensions as equal.
INSERT_TRIALS = f"""
INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, place)
SELECT %(run)s, missing.*, {make_place_sql("missing.item_id", "missing.sample_idx")} FROM (
    SELECT sample_idx, item.id AS item_id, dimension.id AS dimension_id
    FROM generate_series(0, %(samples)s - 1) AS sample_idx
    CROSS JOIN {ITEMS}
    CROSS JOIN unnest(%(dimensions)s::bigint[]) AS dimension (id)
    EXCEPT
    SELECT sample_idx, item_id, dimension_id FROM runs_app_trial WHERE run_id = %(run)s
    ORDER BY 1, 2, 3
) AS missing
"""  # noqa: S608 - the text above


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The result of planning: the rows of this wave, and the number of new trials.

    `is_new` is false if a launch found nothing to add and nothing to start. `notes` are sentences about runs that a
    launch leaves unchanged.
    """

    wave: Wave
    run_ids: list[int]
    conditions: int
    runs: int
    trials_added: int
    trials_total: int
    warnings: list[str]
    is_new: bool = True
    notes: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """Return a text such as `98 new trials, 118 in all, in 4 runs`."""
        new, runs = _count_noun(self.trials_added, "new trial"), _count_noun(self.runs, "run")
        return f"{new}, {format_count(self.trials_total)} in all, in {runs}"


def _count_noun(n: int, noun: str) -> str:
    return f"{format_count(n)} {noun}{'' if n == 1 else 's'}"


def plan(
    experiment: Experiment,
    *,
    wave_label: str = "",
    by: Actor = None,
    pilot: int | None = None,
    only: Collection[str] | None = None,
    policy: str | None = None,
    launched_rows: Collection[Any] = (),
) -> PlanReport:
    """Create every missing condition, run and trial of the design or of a pilot, in one transaction.

    Two processes that plan one experiment at once take turns by its row lock. The second one finds all rows. `only` is
    a set of cell ids (`Cell.condition_id`); None is all. `policy` is a budget policy that replaces the design's own.
    The design may use `launched_rows` even if they are archived. A done run that gets new trials becomes planned again.

    Raise PlanError if the design has problems; then nothing changes.
    """
    with transaction.atomic():
        rows = Experiment.objects.select_related("dataset").select_for_update(of=("self",), no_key=True)
        locked: Experiment = rows.get(pk=experiment.pk)
        if locked.imported_from:
            raise PlanError([locked.describe_imported()])
        design = Design.load(locked, policy=policy, launched_rows=launched_rows)
        design = design if only is None else design.narrow_to(only)
        if problems := design.find_problems():
            raise PlanError(problems)
        _freeze_drafts(design, by)
        wave = _get_or_create_wave(locked, wave_label)
        shares = []
        for cell, n in _list_cells_to_plan(design, pilot):
            condition, bounds = _get_or_create_condition(design, cell), design.get_call_bounds(cell)
            shares.append((get_or_create_run(condition, wave, bounds, is_batched=design.is_batched(cell)), n))
        runs = [run for run, _ in shares]
        reason = "{n} trials were added"
        added = [add_trials(run, _choose_insertion(design, n), by=by, reason=reason, starts=False) for run, n in shares]
        totals = Run.objects.filter(pk__in=[run.pk for run in runs])
        cancelled = [run for run in runs if run.status == Run.Status.CANCELLED]
        return PlanReport(
            wave=wave,
            run_ids=[run.pk for run in runs],
            conditions=len(runs),
            runs=len(runs),
            trials_added=sum(added),
            trials_total=sum(run.n_trials for run in totals),
            warnings=[
                *design.find_warnings(),
                *([run.describe_cancelled("launch a new wave to ask again") for run in cancelled]),
            ],
        )


def _list_cells_to_plan(design: Design, pilot: int | None) -> list[tuple[Cell, int | None]]:
    """Return the cells that get trials, each with its minimum number; None is all trials.

    A small pilot leaves cells out.
    """
    if pilot is None:
        return [(cell, None) for cell in design.cells]
    if pilot < 1:
        raise PlanError(["a pilot must have at least one trial"])
    return [(cell, n) for cell, n in zip(design.cells, share_pilot(design, pilot), strict=True) if n]


def _freeze_drafts(design: Design, by: Actor) -> None:
    """Freeze the design's draft samplers and dimensions. The database then refuses to change them."""
    for rows in (design.samplers, design.dimensions):
        if drafts := [row.pk for row in rows if row.status == row.Status.DRAFT]:
            type(rows[0]).freeze_used(drafts, by=by)


def _get_or_create_wave(experiment: Experiment, label: str) -> Wave:
    """Return the wave with this label, or create it with the epochs after those of all other waves.

    Raise PlanError if epochs would overlap.
    """
    waves = list(experiment.waves.all())
    wave = next((wave for wave in waves if wave.label == label), None)
    if wave is None:
        number = experiment.waves.aggregate(last=Max("number"))["last"]
        offset = max((wave.epoch_offset + _count_epochs(wave, experiment) for wave in waves), default=0)
        number = 0 if number is None else number + 1
        return Wave.objects.create(experiment=experiment, number=number, label=label, epoch_offset=offset)
    if problem := experiment.find_wave_overlap(label, experiment.samples):
        raise PlanError([problem])
    return wave


def _count_epochs(wave: Wave, experiment: Experiment) -> int:
    """Return the number of epochs of a wave: the design's samples, or more if earlier trials had more."""
    used = Answer.objects.filter(wave=wave).aggregate(last=Max("sample_idx"))["last"]
    return max(experiment.samples, 0 if used is None else used + 1)


def _get_or_create_condition(design: Design, cell: Cell) -> Condition:
    """Return the condition with this content, or create it.

    A renamed model or prompt keeps its condition, so its trials are not paid for again.
    """
    hash12 = get_condition_hash(cell.condition_id)
    rows: dict[str, Any] = {f"{axis}_id": facet.key for axis, facet in cell.facets.items()}
    existing: Condition | None = design.experiment.answer_conditions.filter(
        condition_id__endswith=f"--{hash12}", **rows
    ).first()
    if existing:
        return existing
    return Condition.objects.get_or_create(
        experiment=design.experiment, condition_id=cell.condition_id, defaults={**rows, "content": cell.content}
    )[0]


def _choose_insertion(design: Design, share: int | None) -> Callable[[Run], int]:
    """Return the function that inserts a run's missing trials: those of the design, or a pilot's share."""
    if share is None:
        return partial(_insert_missing, design)
    return partial(insert_share, design, share)


def _insert_missing(design: Design, run: Run) -> int:
    """Insert every missing trial of the design, or the first round of each point of an adaptive design.

    The policy `dev` plans its few items without points, as a pilot does.
    """
    if design.adaptive is not None and not design.is_dev:
        return points.open_points(design.adaptive, run, design.experiment)
    with connection.cursor() as cursor:
        cursor.execute(
            INSERT_TRIALS,
            {
                "run": run.pk,
                "samples": design.samples,
                "shuffle": design.experiment.shuffle,
                "items": design.dev_item_ids,
                "dataset": design.experiment.dataset_id,
                "dimensions": [dimension.pk for dimension in design.dimensions] or [None],
            },
        )
        return int(cursor.rowcount)
