"""Writing a study of another tool as rows: dataset, models, prompts, experiment, runs, trials, attempts and gradings.

Everything is written in one transaction. Imported runs are done, their models are inactive, and the experiment says
which tool it came from. So nothing of it is ever called or paid for here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction
from django.db.models import Max

from datasets_app.importing.image_storage import store_images
from datasets_app.models import Asset, Dataset, Item, Norm
from evalsite.lib.history import record_changes
from evalsite.lib.text.hashing import build_condition_id, hash_content, slugify_name
from grading_app.judging.grader_specs import create_experiment
from grading_app.models import GradeCondition
from grading_app.study_import.row_writer import reserve_keys, write_rows
from grading_app.study_import.study import (
    Study,
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyTrial,
)
from grading_app.study_import.study_checks import check_design, check_items
from grading_app.study_import.study_completion import count_rows
from grading_app.study_import.trial_rows import (
    ImportReport,
    StudyRows,
    write_batch,
)
from runs_app.experiment_files.spec_reader import read_spec
from runs_app.models import (
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    Prompt,
    Sampler,
    Trial,
    Wave,
)
from runs_app.planning.conditions import Cell, Facet

BATCH = 2000
BATCH_CHARS = 8_000_000
ENDPOINT = "imported"
PLACEHOLDER = ({"role": "user", "content": "{{input}}"},)
REASON = "Imported from {tool}"


def write_study(
    study: Study, slug: str, owner: User, dataset: Dataset | None = None, *, dry_run: bool = False
) -> ImportReport:
    """Write the study under this name, or add the trials that an earlier import of it did not have.

    dataset: an approved dataset with the items of the study, by key; None to create one from the study. A dry run
    writes the same rows and takes them back. Raise StudyError and write nothing in three cases: the name belongs to
    another experiment or dataset, a trial names an unknown item, or the database cannot store a value.
    """
    check_design(study)
    try:
        with transaction.atomic():
            if dataset is None and not dry_run:  # Files first, so that no row names a missing file.
                store_images(item.image for item in study.items if item.image)
            report = _write_study(study, slug, owner, dataset)
            transaction.set_rollback(dry_run)
            return report
    except (DataError, IntegrityError) as error:
        raise StudyError([f"{study.name}: the database refuses a row: {str(error).splitlines()[0]}"]) from error


def _write_study(study: Study, slug: str, owner: User, dataset: Dataset | None) -> ImportReport:
    experiment = Experiment.objects.select_for_update().filter(slug=slug).first()
    if experiment is None:
        experiment = Experiment.objects.create(
            slug=slug,
            title=study.name,
            owner=owner,
            dataset=dataset or create_dataset(study, slug, owner),
            imported_from=study.tool,
            status=Experiment.Status.ACTIVE,
            # The repetitions rise when the trials have been read.
            **{"samples": 1, **study.settings},
        )
    elif experiment.imported_from != study.tool:
        raise StudyError([f"the experiment {slug} exists and is not an import from {study.tool}: choose another name"])
    elif dataset is not None and dataset != experiment.dataset:
        raise StudyError([f"the experiment {slug} has the dataset {experiment.dataset}: choose another name"])
    if dataset is not None:
        if dataset.status != Dataset.Status.APPROVED:
            raise StudyError([f"the dataset {dataset} is not approved"])
        keys = set(dataset.items.values_list("key", flat=True))
        if problems := [
            f"the dataset {dataset} has no item {item.key!r}" for item in study.items if item.key not in keys
        ]:
            raise StudyError(problems)
    rows = _create_referenced_rows(study, experiment, owner)
    report = ImportReport(experiment, len(rows.items), len(rows.conditions), notes=list(study.notes))
    for batch in _split_batches(study.trials()):
        write_batch(batch, rows, experiment, report)
    # The files may have more repetitions than at the first import.
    Experiment.objects.filter(pk=experiment.pk, samples__lt=report.samples).update(samples=report.samples)
    experiment.refresh_from_db(fields=["samples"])
    count_rows(experiment)
    if report.recovered:
        report.notes.append(
            f"{report.recovered} trials failed here and are done in the files: they stay failed. Import the files "
            "under another name to take their answers."
        )
    if report.changed:
        report.notes.append(
            f"{report.changed} trials have another outcome in the files than here, such as "
            f"{'; '.join(report.first_changes)}: they stay as they are here."
        )
    return report


def _split_batches(trials: Iterator[StudyTrial]) -> Iterator[list[StudyTrial]]:
    """Yield lists of at most BATCH trials. Long answers make shorter lists, so that the memory has a limit."""
    batch: list[StudyTrial] = []
    chars = 0
    for trial in trials:
        batch.append(trial)
        chars += trial.size
        if len(batch) == BATCH or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


# --- the design -------------------------------------------------------------------------------------------------------


def create_dataset(study: Study, slug: str, owner: User) -> Dataset:
    """Create an approved dataset of the study's items. Raise StudyError if the name is in use."""
    if Dataset.objects.filter(slug=slug).exists():
        raise StudyError([f"the dataset {slug} exists: choose another name"])
    dataset = Dataset.objects.create(
        slug=slug,
        title=study.name,
        source=study.source or f"Imported from {study.tool}",
        created_by=owner,
        recipe=dict(study.recipe),
    )
    images = {item.image.sha256: item.image for item in study.items if item.image}
    Asset.objects.bulk_create(
        [
            Asset(sha256=sha256, format=image.format, width=image.width, height=image.height, size=image.size)
            for sha256, image in images.items()
        ],
        ignore_conflicts=True,  # `store_images` has written them, unless this is a dry run.
    )
    keys = reserve_keys(Item, len(study.items))
    for start in range(0, len(keys), BATCH):
        batch = list(zip(keys[start : start + BATCH], study.items[start : start + BATCH], strict=True))
        write_rows(Item, [{
            "id": key, "dataset_id": dataset.pk, "position": position, "key": item.key, "input": item.input,
            "target": item.target, "category": item.category, "choices": item.choices, "metadata": item.metadata,
            "image_id": item.image.sha256 if item.image else None, "grading_scheme": item.grading_scheme,
            "excluded": item.excluded, "note": item.note,
        } for position, (key, item) in enumerate(batch, start)])  # fmt: skip
        write_rows(Norm, [{
            "item_id": key, "dimension": norm.dimension, "mean": norm.mean, "sd": norm.sd, "n": norm.n,
        } for key, item in batch for norm in item.norms])  # fmt: skip
    dataset.approve(by=owner, reason=REASON.format(tool=study.tool))
    return dataset


def _create_referenced_rows(study: Study, experiment: Experiment, owner: User) -> StudyRows:
    rating = {} if not study.dimensions else {"answer_format": Prompt.AnswerFormat.RATING}
    dimensions = {part.name: _create_versioned(Dimension(
        name=part.name, title=part.name.capitalize(), instructions=part.instructions or "Not in the imported files.",
        scale_min=part.low, scale_max=part.high,
    ), owner, study.tool) for part in study.dimensions}  # fmt: skip
    experiment.dimensions.add(*dimensions.values())
    conditions = {}
    trial_conditions = {part.key for part in study.conditions}
    for part in (*study.conditions, *study.planned):
        model = _create_model(part, study.tool, owner)
        messages = [dict(turn) for turn in part.messages or PLACEHOLDER]
        prompt = _create_versioned(
            Prompt(name=slugify_name(part.prompt), messages=messages, **rating), owner, study.tool
        )
        sampler = _create_versioned(Sampler(name=slugify_name(part.sampler), **part.settings), owner, study.tool)
        for axis, row in (("language_models", model), ("prompts", prompt), ("samplers", sampler)):
            getattr(experiment, axis).add(row)
        if part.key in trial_conditions:
            # A run of the source is part of the identity of a condition.
            run = part.run
            cell = Cell(
                Facet(model.name, model.identity, model.pk),
                Facet(prompt.name, prompt.content, prompt.pk),
                Facet(sampler.name, sampler.content, sampler.pk),
            )
            content = {**cell.content, **({"run": run} if run else {})}
            slug = f"{cell.slug}_run-{hash_content(run)[:12]}" if run else cell.slug
            conditions[part.key] = Condition.objects.get_or_create(
                experiment=experiment,
                condition_id=build_condition_id(slug, content),
                defaults={"model": model, "prompt": prompt, "sampler": sampler, "content": content},
            )[0]
    items = dict(experiment.dataset.items.values_list("key", "pk"))
    waves = {
        part.number: Wave.objects.get_or_create(
            experiment=experiment,
            number=part.number,
            defaults={"label": part.label[:80], "epoch_offset": part.epoch_offset},
        )[0]
        for part in study.waves
    }
    dimension_keys = {name: row.pk for name, row in dimensions.items()}
    last_trial = Trial.objects.aggregate(last=Max("pk"))["last"] or 0
    judges = {name: _create_judge(judge, experiment, owner, study.tool) for name, judge in study.judges.items()}
    rows = StudyRows(items, dimension_keys, conditions, waves, last_trial, scorers=judges)
    for condition in conditions.values():
        rows.get_run(condition, study.waves[0].number)
    return rows


def _create_judge(judge: StudyJudge, experiment: Experiment, owner: User, tool: str) -> GradeCondition:
    """Return the grade condition of a judge, and create it if it is new. It has no grader: nothing here can call it."""
    part = judge.condition
    model = _create_model(part, tool, owner)
    sampler = _create_versioned(Sampler(name=slugify_name(part.sampler), **part.settings), owner, tool)
    facts = {"judge": judge.name, "rubric": part.prompt, "rubric_hash": judge.rubric_hash, "source": judge.source_id}
    content = {
        "model": model.identity,
        "sampler": sampler.content,
        "prompt": {"messages": [dict(turn) for turn in part.messages], "answer_format": "text"},
        "imported": facts,
    }
    key = build_condition_id(f"{slugify_name(judge.name)}_{slugify_name(part.prompt)}", content)
    judge_condition = Condition.objects.get_or_create(
        experiment=experiment,
        condition_id=key,
        defaults={"stage": Condition.Stage.JUDGE, "model": model, "sampler": sampler, "content": content},
    )[0]
    scale = {"scale": list(judge.scale)} if judge.scale else {}
    return GradeCondition.objects.get_or_create(
        experiment=experiment,
        grade_condition_id=key,
        defaults={
            "kind": GradeCondition.Kind.JUDGE,
            "judge_condition": judge_condition,
            "parameters": {"imported": tool, **{name: fact for name, fact in facts.items() if fact}, **scale},
        },
    )[0]


def _create_model(condition: StudyCondition, tool: str, owner: User) -> LanguageModel:
    provider = condition.provider.lower()
    endpoint = Endpoint.objects.get_or_create(
        name=f"{ENDPOINT}-{slugify_name(provider)}" if provider else ENDPOINT,
        defaults={"provider": provider[:80], "base_url": "https://imported.invalid/v1", "is_active": False},
    )[0]
    name = slugify_name(f"{tool}-{condition.model}")[:80]
    same_name = LanguageModel.objects.filter(name=name)
    if same_name.exclude(model=condition.model_id[:200], endpoint=endpoint).exists():  # Of another provider.
        name = f"{name[:60]}-{hash_content([provider, condition.model_id])[:12]}"
    model, is_new = LanguageModel.objects.get_or_create(
        name=name, defaults={"endpoint": endpoint, "model": condition.model_id[:200], "is_active": False}
    )
    if is_new:
        record_changes([(model, "", "created")], by=owner, reason=REASON.format(tool=tool))
    return model


def _create_versioned(row: Any, owner: User, tool: str) -> Any:
    """Return the version with this name and content, or create it as an imported one.

    A name with another content belongs to this site or to another import: the new row then gets the name and a number.
    So the newest version of a name is never that of a file. A dimension keeps its name, which models see and by which
    norms are matched, and becomes another version. A name without a version never means an imported one.
    """
    kind, name, number = type(row), row.name, 2
    while (versions := kind.objects.filter(name=row.name)).exists():
        same = versions.filter(content_hash=hash_content(row.content)).exclude(status__in=["draft", "archived"])
        if (version := same.order_by("-version").first()) is not None:
            return version
        if kind is Dimension:
            row.version = Dimension.get_next_version(name)
            break
        row.name, number = f"{name[: 79 - len(str(number))]}-{number}", number + 1
    row.status, row.created_by = kind.Status.IMPORTED, owner
    try:
        row.clean_fields(exclude=["name", "created_by"])
        row.clean()
    except ValidationError as error:
        raise StudyError([f"{kind._meta.verbose_name} {row.name}: {' '.join(error.messages)}"]) from error
    row.save()
    record_changes([(row, "", row.status)], by=owner, reason=REASON.format(tool=tool))
    return row


@transaction.atomic
def create_draft(design: StudyDesign, by: User, *, trusted: bool = False) -> tuple[Experiment, list[str]]:
    """Create the draft, and return it with notes. trusted: the rows of a design may be created whoever asks.

    Raise StudyError or SpecError, and create nothing, if the design cannot be one of this site.
    """
    content: dict[str, Any] = dict(design.content)
    notes = list(design.notes)
    if Experiment.objects.filter(slug=content["experiment"]).exists():
        raise StudyError([f"the experiment {content['experiment']} exists: choose another name"])
    if design.items:
        notes.append(_provide_dataset(design, str(content["dataset"]), by))
    if "models" not in content:
        model = LanguageModel.objects.filter(is_active=True).order_by("name").first()
        if model is None:
            raise StudyError(["the files name no model, and this site has none: create a model first"])
        content["models"] = [model.name]
        notes.append(f"The files name no model: the draft has {model.name}. Choose the models of your study.")
    experiment = create_experiment(read_spec(content), by=by, trusted=trusted, is_import=True)
    return experiment, notes


def _provide_dataset(design: StudyDesign, name: str, by: User) -> str:
    """Create the dataset of a design unless one of this name has all its items. Return a note."""
    items = [StudyItem(**{**item, "choices": tuple(item.get("choices", ()))}) for item in design.items]
    check_items(items)
    if (dataset := Dataset.objects.visible_to(by).named(name).first()) is None:
        create_dataset(Study(name, design.tool, items, [], lambda: iter(())), name, by)
        return f"The dataset {name} was created with {len(items)} items."
    missing = {item.key for item in items} - set(dataset.items.values_list("key", flat=True))
    if missing:
        raise StudyError([f"the dataset {dataset} has no item {key!r}: choose another name" for key in sorted(missing)])
    return f"The dataset {dataset} is here already and is used."
