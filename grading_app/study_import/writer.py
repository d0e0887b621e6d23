"""Writing a study of another tool as rows: dataset, models, prompts, experiment, runs, trials, attempts and gradings.

Everything is written in one transaction. Imported runs are done, their models are inactive, and the experiment says
which tool it came from. So nothing of it is ever called or paid for here.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db import DataError, IntegrityError, transaction
from django.db.models import Count, Q, Sum
from django.utils import timezone

from datasets_app import curation
from datasets_app.models import Dataset, Item, Norm
from datasets_app.models.history import record_changes
from evalsite.lib.text.hashing import condition_id, content_hash, slugify_name
from grading_app.models import GradeCondition, Grading
from grading_app.study_import.checks import MOST_SAMPLES, check_design, check_trial
from grading_app.study_import.study import Study, StudyCondition, StudyError, StudyScore, StudyTrial, StudyWave
from runs_app.models import (
    Attempt,
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    Prompt,
    Run,
    Sampler,
    Trial,
    Wave,
)
from runs_app.planning.conditions import Cell, Facet
from runs_app.planning.row_versions import next_version

BATCH = 2000
ENDPOINT = "imported"
PLACEHOLDER = ({"role": "user", "content": "{{input}}"},)
REASON = "Imported from {tool}"
USAGE = (
    "finish_reason", "response_id", "served_model", "input_tokens", "output_tokens", "reasoning_tokens", "cost_usd",
    "latency_ms", "cache_read_tokens", "cache_write_tokens",
)  # fmt: skip


@dataclass
class ImportReport:
    """The counts of an import. skipped: trials that were there already. notes: what was not taken, and why."""

    experiment: Experiment
    items: int = 0
    conditions: int = 0
    trials: int = 0
    failed: int = 0
    attempts: int = 0
    gradings: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class _Rows:
    """The rows that the trials of a study refer to, by the keys of the study."""

    items: dict[str, int]
    dimensions: dict[str, int]
    conditions: dict[str, Condition]
    waves: dict[int, Wave]
    known: set[tuple[int, int, int | None, int]]
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    graders: dict[str, GradeCondition] = field(default_factory=dict)

    def run(self, condition: str, wave: int) -> Run:
        """Return the run of a condition in a wave, and create it if it is new."""
        key = (condition, wave)
        if key not in self.runs:
            row = self.conditions[condition]
            self.runs[key] = Run.objects.get_or_create(
                condition=row,
                wave=self.waves[wave],
                defaults={"experiment_id": row.experiment_id, "status": Run.Status.DONE},
            )[0]
        return self.runs[key]


def write_study(study: Study, slug: str, owner: User, dataset: Dataset | None = None) -> ImportReport:
    """Write the study under this name, or add the trials that an earlier import of it did not have.

    dataset: an approved dataset with the items of the study, by key; None to create one from the study. Raise
    StudyError, and write nothing, if the name belongs to another experiment or dataset, if a trial names an unknown
    item, or if the database cannot store a value.
    """
    check_design(study)
    try:
        with transaction.atomic():
            return _write_study(study, slug, owner, dataset)
    except (DataError, IntegrityError) as error:
        raise StudyError([f"{study.name}: the database refuses a row: {str(error).splitlines()[0]}"]) from error


def _write_study(study: Study, slug: str, owner: User, dataset: Dataset | None) -> ImportReport:
    experiment = Experiment.objects.select_for_update().filter(slug=slug).first()
    if experiment is None:
        experiment = _create_experiment(study, slug, owner, dataset or _create_dataset(study, slug, owner))
    elif experiment.imported_from != study.tool:
        raise StudyError([f"the experiment {slug} exists and is not an import from {study.tool}: choose another name"])
    elif dataset is not None and dataset != experiment.dataset:
        raise StudyError([f"the experiment {slug} has the dataset {experiment.dataset}: choose another name"])
    if dataset is not None:
        _check_items(study, dataset)
    rows = _referenced_rows(study, experiment, owner)
    report = ImportReport(experiment, len(rows.items), len(rows.conditions), notes=list(study.notes))
    trials = study.trials()
    while batch := list(islice(trials, BATCH)):
        _write_batch(batch, rows, experiment, report)
    for run in rows.runs.values():
        _refresh_counters(run)
    _refresh_spending(experiment)
    return report


# --- the design -------------------------------------------------------------------------------------------------------


def _check_items(study: Study, dataset: Dataset) -> None:
    """Raise StudyError if the dataset does not have an item of the study."""
    if dataset.status != Dataset.Status.APPROVED:
        raise StudyError([f"the dataset {dataset} is not approved"])
    known = set(dataset.items.values_list("key", flat=True))
    if missing := [f"the dataset {dataset} has no item {one.key!r}" for one in study.items if one.key not in known]:
        raise StudyError(missing)


def _create_dataset(study: Study, slug: str, owner: User) -> Dataset:
    if Dataset.objects.filter(slug=slug).exists():
        raise StudyError([f"the dataset {slug} exists: choose another name"])
    dataset = Dataset.objects.create(
        slug=slug,
        title=study.name,
        source=study.source or f"Imported from {study.tool}",
        created_by=owner,
        recipe=dict(study.recipe),
    )
    items = Item.objects.bulk_create(
        (
            Item(
                dataset=dataset, position=position, key=one.key, input=one.input, target=one.target,
                category=one.category, choices=list(one.choices), metadata=dict(one.metadata),
                grading_scheme=one.grading_scheme, excluded=one.excluded, note=one.note,
            )
            for position, one in enumerate(study.items)
        ),
        batch_size=BATCH,
    )  # fmt: skip
    Norm.objects.bulk_create(
        (
            Norm(item=item, dimension=norm.dimension, mean=norm.mean, sd=norm.sd, n=norm.n)
            for item, one in zip(items, study.items, strict=True)
            for norm in one.norms
        ),
        batch_size=BATCH,
    )
    curation.approve(dataset, by=owner, reason=REASON.format(tool=study.tool))
    return dataset


def _create_experiment(study: Study, slug: str, owner: User, dataset: Dataset) -> Experiment:
    most = max((trial.sample_idx for trial in study.trials()), default=0) + 1
    return Experiment.objects.create(
        slug=slug,
        title=study.name,
        owner=owner,
        dataset=dataset,
        samples=min(max(most, 1), MOST_SAMPLES),
        imported_from=study.tool,
        status=Experiment.Status.ACTIVE,
    )


def _referenced_rows(study: Study, experiment: Experiment, owner: User) -> _Rows:
    rating = {} if not study.dimensions else {"answer_format": Prompt.AnswerFormat.RATING}
    dimensions = {one.name: _versioned(Dimension(
        name=one.name, title=one.name.capitalize(), instructions=one.instructions or "Not in the imported files.",
        scale_min=one.low, scale_max=one.high,
    ), owner, study.tool) for one in study.dimensions}  # fmt: skip
    experiment.dimensions.add(*dimensions.values())
    conditions = {}
    for one in study.conditions:
        model = _model(one, study.tool, owner)
        messages = [dict(turn) for turn in one.messages or PLACEHOLDER]
        prompt = _versioned(Prompt(name=slugify_name(one.prompt), messages=messages, **rating), owner, study.tool)
        sampler = _versioned(Sampler(name=slugify_name(one.sampler), **one.settings), owner, study.tool)
        for axis, row in (("language_models", model), ("prompts", prompt), ("samplers", sampler)):
            getattr(experiment, axis).add(row)
        conditions[one.key] = _condition(experiment, model, prompt, sampler)
    items = dict(experiment.dataset.items.values_list("key", "pk"))
    known = Trial.objects.filter(run__experiment=experiment).values_list("run", "item", "dimension", "sample_idx")
    waves = {one.number: _wave(experiment, one) for one in study.waves}
    rows = _Rows(items, {name: row.pk for name, row in dimensions.items()}, conditions, waves, set(known.iterator()))
    for key in conditions:
        rows.run(key, study.waves[0].number)
    return rows


def _wave(experiment: Experiment, one: StudyWave) -> Wave:
    return Wave.objects.get_or_create(
        experiment=experiment,
        number=one.number,
        defaults={"label": one.label[:80], "epoch_offset": one.epoch_offset},
    )[0]


def _model(one: StudyCondition, tool: str, owner: User) -> LanguageModel:
    endpoint = Endpoint.objects.get_or_create(
        name=ENDPOINT, defaults={"base_url": "https://imported.invalid/v1", "is_active": False}
    )[0]
    name = slugify_name(f"{tool}-{one.model}")[:80]
    if LanguageModel.objects.filter(name=name).exclude(model=one.model_id[:200]).exists():  # Of another provider.
        name = f"{name[:60]}-{content_hash(one.model_id)[:12]}"
    found, is_new = LanguageModel.objects.get_or_create(
        name=name, defaults={"endpoint": endpoint, "model": one.model_id[:200], "is_active": False}
    )
    if is_new:
        record_changes([(found, "", "made")], by=owner, reason=REASON.format(tool=tool))
    return found


def _versioned(row: Any, owner: User, tool: str) -> Any:
    """Return the approved version with this name and content, or create it."""
    kind = type(row)
    same = kind.objects.filter(name=row.name, content_hash=content_hash(row.content), status="approved")
    if (found := same.order_by("-version").first()) is not None:
        return found
    row.version, row.created_by = next_version(kind, row.name), owner
    row.save()
    kind.objects.transition_one(row, sources=["draft"], target="approved", by=owner, reason=REASON.format(tool=tool))
    return row


def _condition(experiment: Experiment, model: LanguageModel, prompt: Prompt, sampler: Sampler) -> Condition:
    cell = Cell(
        Facet(model.name, model.identity, model.pk),
        Facet(prompt.name, prompt.content, prompt.pk),
        Facet(sampler.name, sampler.content, sampler.pk),
    )
    return Condition.objects.get_or_create(
        experiment=experiment,
        condition_id=condition_id(cell.slug, cell.content),
        defaults={"model": model, "prompt": prompt, "sampler": sampler, "content": cell.content},
    )[0]


# --- the rows of answers ----------------------------------------------------------------------------------------------


def _write_batch(batch: list[StudyTrial], rows: _Rows, experiment: Experiment, report: ImportReport) -> None:
    new: list[tuple[StudyTrial, Trial]] = []
    for one in batch:
        trial = _trial(one, rows)
        identity = (trial.run_id, trial.item_id, trial.dimension_id, trial.sample_idx)
        if identity in rows.known:
            report.skipped += 1
            continue
        rows.known.add(identity)
        new.append((one, trial))
    Trial.objects.bulk_create([trial for _, trial in new])
    attempts = [attempt for one, trial in new for attempt in _attempts(one, trial)]
    Attempt.objects.bulk_create(attempts)
    gradings = [_grading(score, trial, rows, experiment) for one, trial in new for score in one.scores]
    Grading.objects.bulk_create(gradings)
    report.trials += len(new)
    report.failed += sum(not one.is_done for one, _ in new)
    report.attempts += len(attempts)
    report.gradings += len(gradings)


def _trial(one: StudyTrial, rows: _Rows) -> Trial:
    check_trial(one)
    places: Mapping[str, Mapping[Any, Any]] = {"item": rows.items, "condition": rows.conditions, "wave": rows.waves}
    for what, known in places.items():
        if getattr(one, what) not in known:
            raise StudyError([f"{one.where}: unknown {what} {getattr(one, what)!r}"])
    if one.dimension is not None and one.dimension not in rows.dimensions:
        raise StudyError([f"{one.where}: unknown dimension {one.dimension!r}"])
    unread = one.is_done and one.dimension is not None and one.rating is None
    return Trial(
        run=rows.run(one.condition, one.wave),
        item_id=rows.items[one.item],
        dimension_id=rows.dimensions[one.dimension] if one.dimension is not None else None,
        sample_idx=one.sample_idx,
        status=Trial.Status.DONE if one.is_done else Trial.Status.FAILED,
        attempts=one.attempts,
        rating=one.rating,
        parse_error="no_rating_found" if unread else "",
        answer=one.answer,
        reasoning=one.reasoning,
        raw_response=one.raw_response,
        truncated=one.is_truncated,
        refused=one.is_refused,
        error_class=one.error_class,
        error=one.error,
        claimed_at=one.claimed_at,
        completed_at=one.completed_at,
        **{name: getattr(one, name) for name in USAGE},
    )


def _attempts(one: StudyTrial, trial: Trial) -> Iterator[Attempt]:
    """Yield the calls of a trial. The source has the cost of the last one only; earlier ones are unknown."""
    finished = one.completed_at or one.claimed_at or timezone.now()
    for _ in range(one.attempts - 1):
        yield Attempt(
            trial=trial, run_id=trial.run_id, token=uuid.uuid4(), finished_at=finished, error_class="unknown",
            outcome=Attempt.Outcome.TRANSIENT, error="" if one.is_done else one.error,
        )  # fmt: skip
    yield Attempt(
        trial=trial,
        run_id=trial.run_id,
        token=uuid.uuid4(),
        outcome=Attempt.Outcome.OK if one.is_done else Attempt.Outcome.PERMANENT,
        empty=one.is_done and one.answer == "",
        truncated=one.is_truncated,
        refused=one.is_refused,
        unparsed=bool(trial.parse_error),
        error_class=one.error_class,
        error=one.error,
        started_at=one.claimed_at,
        finished_at=finished,
        **{name: getattr(one, name) for name in USAGE},
    )


def _grading(score: StudyScore, trial: Trial, rows: _Rows, experiment: Experiment) -> Grading:
    grader = rows.graders.get(score.scorer)
    if grader is None:
        name = slugify_name(score.scorer)[:40]
        grader = rows.graders[score.scorer] = GradeCondition.objects.get_or_create(
            experiment=experiment,
            grade_condition_id=f"imported-{name}",
            defaults={"scorer": name, "parameters": {"imported": experiment.imported_from}},
        )[0]
    return Grading(
        trial=trial,
        condition=grader,
        score=score.value,
        score_raw=score.raw,
        parse_ok=score.value is not None,
        parse_error="" if score.value is not None else (score.error or "no_score")[:40],
        reasoning=score.reasoning,
        detail=None if score.detail is None else dict(score.detail),
    )


# --- counters ---------------------------------------------------------------------------------------------------------


def _refresh_counters(run: Run) -> None:
    """Set the counters of an imported run to what its rows say, as `reconcile` computes them."""
    statuses = Counter(dict(run.trials.values_list("status").annotate(n=Count("pk")).order_by()))
    calls = run.attempt_rows.aggregate(
        n_attempts=Count("pk"),
        n_permanent=Count("pk", filter=Q(outcome=Attempt.Outcome.PERMANENT)),
        n_unpriced=Count("pk", filter=Q(cost_usd=None)),
        spent_usd=Sum("cost_usd", default=Decimal(0)),
        input_tokens=Sum("input_tokens", default=0),
        output_tokens=Sum("output_tokens", default=0),
    )
    Run.objects.filter(pk=run.pk).update(n_done=statuses["done"], n_failed=statuses["failed"], **calls)


def _refresh_spending(experiment: Experiment) -> None:
    """Set what was spent. There is no budget: imported costs were paid elsewhere, and nothing more is called."""
    spent = experiment.runs.aggregate(all=Sum("spent_usd", default=Decimal(0)))["all"]
    Experiment.objects.filter(pk=experiment.pk).update(spent_usd=spent)
