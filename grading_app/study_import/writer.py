"""Writing a study of another tool as rows: dataset, models, prompts, experiment, runs, trials, attempts and gradings.

Everything is written in one transaction. Imported runs are done, their models are inactive, and the experiment says
which tool it came from. So nothing of it is ever called or paid for here.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Max
from django.utils import timezone

from datasets_app.importing.image_storage import store_images
from datasets_app.importing.limited_reader import Watch
from datasets_app.models import Dataset, Item, Norm
from evalsite.lib.history import record_changes
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import build_condition_id, hash_content, slugify_name
from grading_app.grading.consistency_check import recount
from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.models import GradeCondition, Grading
from grading_app.study_import.importers import FORMATS
from grading_app.study_import.row_writer import reserve_keys, write_rows
from grading_app.study_import.source_import import ImportOptions, ImportReport, SourceImport, number_names
from grading_app.study_import.study import (
    INPUT_TURN,
    USAGE,
    StudyCall,
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyTrial,
)
from grading_app.study_import.study_checks import check_design, check_items, check_trial
from grading_app.study_import.study_files import Study
from runs_app.experiment_files.spec_reader import SpecError, read_spec
from runs_app.llm.failures import remove_key_patterns
from runs_app.llm.keys import list_secrets, redact
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
from runs_app.planning.design import Cell, Facet

Row = dict[str, Any]  # By the columns of the database.
Trials = list[tuple[StudyTrial, Row]]
Identity = tuple[int, int | None, int | None, int]  # Run, item, dimension, repetition.
BATCH = 2000
BATCH_CHARS = 8_000_000
WATCH_INTERVAL = 100  # Trials between two looks at the clock.
ENDPOINT = "imported"
REASON = "Imported from {tool}"
FIRST_CHANGES = 3
LONGEST_SCORER = 40
# LIMIT keeps the planner from joining the whole table: each trial is one look into the index of the unique constraint.
FIND_STORED = """
SELECT wanted.place, stored.id, stored.status, stored.answer, stored.rating
FROM unnest(%(runs)s::bigint[], %(items)s::bigint[], %(dimensions)s::bigint[], %(samples)s::int[])
    WITH ORDINALITY AS wanted (run, item, dimension, sample_idx, place)
CROSS JOIN LATERAL (
    SELECT t.* FROM runs_app_trial t WHERE t.run_id = wanted.run AND t.item_id = wanted.item
        AND t.dimension_id = wanted.dimension AND t.sample_idx = wanted.sample_idx
        AND t.subject_id IS NULL AND t.rival_id IS NULL
    UNION ALL
    SELECT t.* FROM runs_app_trial t WHERE t.run_id = wanted.run AND t.item_id = wanted.item
        AND wanted.dimension IS NULL AND t.dimension_id IS NULL AND t.sample_idx = wanted.sample_idx
        AND t.subject_id IS NULL AND t.rival_id IS NULL
    LIMIT 1
) AS stored
"""
OUTCOME = ("status", "answer", "rating")
CALL_COLUMNS = (*USAGE, "cost_usd", "finish_reason", "response_id", "served_model", "error")
# Labels of the counts of a report. The numbers of attempts and scores are with those of the judges.
ITEMS, CONDITIONS, TRIALS, FAILED, ATTEMPTS = "Items", "Conditions", "Trials", "Failed trials", "Attempts"
SCORES, VERDICTS, SKIPPED = "Scores", "Verdicts of judges", "Trials that are here already"


def _split_batches(study: Study, watch: Watch | None = None) -> Iterator[list[StudyTrial]]:
    """Yield lists of at most BATCH trials. Long answers make shorter lists, so that the memory has a limit."""
    batch: list[StudyTrial] = []
    chars = 0
    for number, trial in enumerate(study.trials(), start=1):
        if watch and number % WATCH_INTERVAL == 0:
            watch(number)
        batch.append(trial)
        chars += trial.size
        if len(batch) == BATCH or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


class StudyImport(SourceImport[Study]):
    """The import of a study: under a new name, or the trials that an earlier import of it did not have.

    Raise StudyError in three cases: the name belongs to another experiment or dataset, a trial names an unknown item,
    or the database cannot store a value. runs: by the keys of condition and wave. items, dimensions, conditions, waves,
    scorers: by the keys of the study. last_trial: the largest key of a trial before this import.
    """

    def __init__(self, source: Study, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.study, self.name = source, source.name
        self.dimensions: dict[str, int] = {}
        self.conditions: dict[str, Condition] = {}
        self.runs: dict[tuple[int, int], Run] = {}
        self.scorers: dict[str, GradeCondition] = {}  # Those of judges are there from the start.
        self.counts: Counter[str] = Counter()
        self.samples = 1
        self.recovered = 0  # Trials that failed here and are done in the files.
        self.changed = 0  # Trials with another answer in the files than here.
        self.first_changes: list[str] = []  # Their places.

    def write(self) -> ImportReport:
        study = self.study
        check_design(study)
        if self.options.dataset is None:  # Files first, so that no row names a missing file.
            images = (item.image for item in study.items.values() if item.image)
            store_images(images, write_files=not self.options.dry_run)
        self.experiment = experiment = self._find_experiment()
        self.items: dict[str, int] = dict(experiment.dataset.items.values_list("key", "pk"))
        self.waves = {
            part.number: Wave.objects.get_or_create(
                experiment=experiment,
                number=part.number,
                defaults={"label": part.label[:80], "epoch_offset": part.epoch_offset},
            )[0]
            for part in study.waves
        }
        self.last_trial = Trial.objects.aggregate(last=Max("pk"))["last"] or 0
        self._write_design()
        for name, judge in study.judges.items():
            self.scorers[name] = self._create_judge(judge)
        for condition in self.conditions.values():
            self._get_run(condition, study.waves[0].number)
        for batch in _split_batches(study, self.options.watch):
            self._write_batch(batch)
        # The files may have more repetitions than at the first import.
        Experiment.objects.filter(pk=experiment.pk, samples__lt=self.samples).update(samples=self.samples)
        recount(experiment)
        shown = dict.fromkeys((ITEMS, CONDITIONS, TRIALS, FAILED, ATTEMPTS), 0)
        shown |= {ITEMS: len(self.items), CONDITIONS: len(self.conditions), **+self.counts}
        source = FORMATS[study.tool].label if study.tool in FORMATS else study.tool
        return ImportReport(source, experiment.slug, counts=shown, notes=list(self._describe_remains()))

    def _describe_remains(self) -> Iterator[str]:
        """Yield sentences about what was not taken."""
        if self.counts[SKIPPED] and not self.counts[TRIALS]:
            yield "All trials of these files are here already: the import adds no trial."
        yield from self.study.notes
        if self.recovered:
            yield (
                f"{self.recovered} trials failed here and are done in the files: they stay failed. Import the files "
                "under another name to take their answers."
            )
        if self.changed:
            yield (
                f"{self.changed} trials have another outcome in the files than here, such as "
                f"{'; '.join(self.first_changes)}: they stay as they are here."
            )
        if self.options.dataset is not None:
            dataset = self.options.dataset
            yield f"Texts, categories and norms are those of {dataset}; those in the files are not taken."

    def _find_experiment(self) -> Experiment:
        """Return the experiment of an earlier import, or a new one. Raise StudyError if the study cannot be in it."""
        study, dataset = self.study, self.options.dataset
        slug = self.options.names.experiment or slugify_name(study.name)
        experiment = Experiment.objects.select_for_update().filter(slug=slug).first()
        if experiment is None:
            source = study.source or REASON.format(tool=study.tool)
            new = Dataset(slug=slug, title=study.name, source=source, created_by=self.owner, recipe=dict(study.recipe))
            experiment = Experiment.objects.create(
                slug=slug,
                title=study.name,
                owner=self.owner,
                dataset=dataset or save_dataset(new, list(study.items.values()), study.tool),
                imported_from=study.tool,
                status=Experiment.Status.ACTIVE,
                # The repetitions rise when the trials have been read.
                **{"samples": 1, **study.settings},
            )
        elif experiment.imported_from != study.tool:
            raise StudyError(
                [f"the experiment {slug} exists and is not an import from {study.tool}: choose another name"]
            )
        elif dataset is not None and dataset != experiment.dataset:
            raise StudyError([f"the experiment {slug} has the dataset {experiment.dataset}: choose another name"])
        if dataset is not None:
            if dataset.status != Dataset.Status.APPROVED:
                raise StudyError([f"the dataset {dataset} is not approved"])
            refuse_missing_items(study.items.values(), dataset)
        return experiment

    # --- the design ---------------------------------------------------------------------------------------------------

    def _write_design(self) -> None:
        study, experiment = self.study, self.experiment
        for scale in study.dimensions:
            dimension = Dimension(
                name=scale.name,
                title=scale.name.capitalize(),
                instructions=scale.instructions or "Not in the imported files.",
                scale_min=scale.low,
                scale_max=scale.high,
            )
            self.dimensions[scale.name] = self._create_versioned(dimension).pk
        experiment.dimensions.add(*self.dimensions.values())
        rating = {"answer_format": Prompt.AnswerFormat.RATING} if study.dimensions else {}
        for part in (*study.conditions.values(), *study.planned):
            model = self._create_model(part)
            messages = [dict(turn) for turn in part.messages or INPUT_TURN]
            prompt = self._create_versioned(Prompt(name=slugify_name(part.prompt), messages=messages, **rating))
            sampler = self._create_versioned(Sampler(name=slugify_name(part.sampler), **part.settings))
            experiment.language_models.add(model)
            experiment.prompts.add(prompt)
            experiment.samplers.add(sampler)
            if part.key not in study.conditions:
                continue
            cell = Cell(
                Facet(model.name, model.identity, model.pk),
                Facet(prompt.name, prompt.content, prompt.pk),
                Facet(sampler.name, sampler.content, sampler.pk),
            )
            # A run of the source is part of the identity of a condition.
            content = {**cell.content, **({"run": part.run} if part.run else {})}
            slug = f"{cell.slug}_run-{hash_content(part.run)[:12]}" if part.run else cell.slug
            self.conditions[part.key] = Condition.objects.get_or_create(
                experiment=experiment,
                condition_id=build_condition_id(slug, content),
                defaults={"model": model, "prompt": prompt, "sampler": sampler, "content": content},
            )[0]

    def _create_judge(self, judge: StudyJudge) -> GradeCondition:
        """Return the grade condition of a judge, a new one if need be. It has no grader: nothing here can call it."""
        part = judge.condition
        model = self._create_model(part)
        sampler = self._create_versioned(Sampler(name=slugify_name(part.sampler), **part.settings))
        facts = {
            "judge": judge.name,
            "rubric": part.prompt,
            "rubric_hash": judge.rubric_hash,
            "source": judge.source_id,
        }
        content = {
            "model": model.identity,
            "sampler": sampler.content,
            "prompt": {"messages": [dict(turn) for turn in part.messages], "answer_format": "text"},
            "imported": facts,
        }
        key = build_condition_id(f"{slugify_name(judge.name)}_{slugify_name(part.prompt)}", content)
        judge_condition = Condition.objects.get_or_create(
            experiment=self.experiment,
            condition_id=key,
            defaults={"stage": Condition.Stage.JUDGE, "model": model, "sampler": sampler, "content": content},
        )[0]
        scale = {"scale": list(judge.scale)} if judge.scale else {}
        known_facts = {name: fact for name, fact in facts.items() if fact}
        return GradeCondition.objects.get_or_create(
            experiment=self.experiment,
            grade_condition_id=key,
            defaults={
                "kind": GradeCondition.Kind.JUDGE,
                "judge_condition": judge_condition,
                "parameters": {"imported": self.study.tool, **known_facts, **scale},
            },
        )[0]

    def _create_model(self, condition: StudyCondition) -> LanguageModel:
        provider = condition.provider.lower()
        endpoint = Endpoint.objects.get_or_create(
            name=f"{ENDPOINT}-{slugify_name(provider)}" if provider else ENDPOINT,
            defaults={"provider": provider[:80], "base_url": "https://imported.invalid/v1", "is_active": False},
        )[0]
        name = slugify_name(f"{self.study.tool}-{condition.model}")[:80]
        same_name = LanguageModel.objects.filter(name=name)
        if same_name.exclude(model=condition.model_id[:200], endpoint=endpoint).exists():  # Of another provider.
            name = f"{name[:60]}-{hash_content([provider, condition.model_id])[:12]}"
        model, is_new = LanguageModel.objects.get_or_create(
            name=name, defaults={"endpoint": endpoint, "model": condition.model_id[:200], "is_active": False}
        )
        if is_new:
            reason = REASON.format(tool=self.study.tool)
            record_changes([(model, "", "created")], by=self.owner, reason=reason)
        return model

    def _create_versioned(self, row: Any) -> Any:
        """Return the version with this name and content, or create it as an imported one.

        A name with another content belongs to this site or to another import. So the newest version of a name is never
        that of a file, and a name without a version never means an imported one.
        """
        kind: Any = type(row)
        for name in number_names(row.name):
            versions = kind.objects.filter(name=name)
            same = versions.filter(content_hash=hash_content(row.content)).exclude(status__in=["draft", "archived"])
            if (version := same.order_by("-version").first()) is not None:
                return version
            if kind is Dimension or not versions.exists():
                break
        row.name, row.version = self.choose_name(kind, row.name, lambda one: kind.objects.filter(name=one).exists())
        row.status, row.created_by = kind.Status.IMPORTED, self.owner
        try:
            row.clean_fields(exclude=["name", "created_by"])
            row.clean()
        except ValidationError as error:
            raise StudyError([f"{kind._meta.verbose_name} {row.name}: {' '.join(error.messages)}"]) from error
        row.save()
        record_changes([(row, "", row.status)], by=self.owner, reason=REASON.format(tool=self.study.tool))
        return row

    def _get_run(self, condition: Condition, wave: int) -> Run:
        """Return the run of a condition in a wave, and create it if it is new."""
        key = (condition.pk, wave)
        if key not in self.runs:
            self.runs[key] = Run.objects.get_or_create(
                condition=condition,
                wave=self.waves[wave],
                defaults={"experiment_id": condition.experiment_id, "status": Run.Status.DONE},
            )[0]
        return self.runs[key]

    def _get_scorer(self, name: str) -> GradeCondition:
        """Return the grade condition of a scorer, and create it if it is new."""
        if name not in self.scorers:
            slug = slugify_name(name)[:LONGEST_SCORER]
            if slug in {condition.scorer for condition in self.scorers.values()}:
                slug = f"{slug[: LONGEST_SCORER - 13]}-{hash_content(name)[:12]}"
            self.scorers[name] = GradeCondition.objects.get_or_create(
                experiment=self.experiment,
                grade_condition_id=f"imported-{slug}",
                defaults={"scorer": slug, "parameters": {"imported": self.experiment.imported_from}},
            )[0]
        return self.scorers[name]

    # --- trials -------------------------------------------------------------------------------------------------------

    def _write_batch(self, batch: list[StudyTrial]) -> None:
        """Write the trials that are not stored yet, and the scores that the stored ones do not have yet.

        Raise StudyError if the files have two different answers to a trial.
        """
        trials = [self._build_trial(study_trial) for study_trial in batch]
        trials_by_identity = _find_stored_trials(trials)
        new_trials: Trials = []
        repeated_trials: Trials = []
        problems: list[str] = []
        for study_trial, trial in zip(batch, trials, strict=True):
            earlier = trials_by_identity.setdefault(_get_identity(trial), trial)
            if earlier is trial:
                new_trials.append((study_trial, trial))
                continue
            repeated_trials.append((study_trial, earlier))
            if all(trial[name] == earlier[name] for name in OUTCOME):
                continue
            if earlier.get("id", math.inf) > self.last_trial:
                problems.append(f"{study_trial.where}: an earlier row has the same trial with another outcome")
            elif study_trial.is_done and earlier["status"] == Trial.Status.FAILED:  # The stored outcome stays.
                self.recovered += 1
            else:
                self.changed += 1
                self.first_changes += [study_trial.where] if len(self.first_changes) < FIRST_CHANGES else []
        if problems:
            raise StudyError(problems)
        self._write_trials(new_trials)
        self._write_gradings(new_trials, repeated_trials)
        self.samples = max(self.samples, *(study_trial.sample_idx + 1 for study_trial in batch))
        self.counts[TRIALS] += len(new_trials)
        self.counts[SKIPPED] += len(repeated_trials)
        self.counts[FAILED] += sum(not study_trial.is_done for study_trial, _ in new_trials)

    def _write_trials(self, trials: Trials) -> None:
        """Write these answers or verdicts with their attempts, and give them keys."""
        for (_, trial), key in zip(trials, reserve_keys(Trial, len(trials)), strict=True):
            trial["id"] = key
        attempts = [attempt for study_trial, trial in trials for attempt in _build_attempts(study_trial, trial)]
        write_rows(Trial, [trial for _, trial in trials])
        write_rows(Attempt, attempts)
        self.counts[ATTEMPTS] += len(attempts)

    def _write_gradings(self, new_trials: Trials, repeated_trials: Trials) -> None:
        """Write the scores of these trials with the judges' calls.

        A stored trial may lack scores that the tool gave after an earlier import.
        """
        stored = Grading.objects.filter(trial__in={trial["id"] for part, trial in repeated_trials if part.scores})
        graded = set(stored.values_list("trial", "condition"))
        pairs: list[tuple[Row, Row]] = []  # Of a grading and the call of its judge.
        verdicts: Trials = []
        for study_trial, trial in (*new_trials, *repeated_trials):
            for score in study_trial.scores:
                condition = self._get_scorer(score.scorer)
                if (trial["id"], condition.pk) in graded:
                    continue
                graded.add((trial["id"], condition.pk))
                verdict: Row = {}
                if score.verdict is not None and condition.judge_condition is not None:
                    run = self._get_run(condition.judge_condition, study_trial.wave)
                    verdict = self._fill_trial(score.verdict, run, sample_idx=0, subject_id=trial["id"])
                    verdicts.append((score.verdict, verdict))
                grading = {
                    "trial_id": trial["id"], "condition_id": condition.pk, "score": score.value,
                    "score_raw": score.raw, "parse_ok": score.value is not None,
                    "parse_error": "" if score.value is not None else (score.error or "no_score")[:40],
                    "reasoning": score.reasoning, "detail": score.detail, "created_at": timezone.now(),
                }  # fmt: skip
                pairs.append((grading, verdict))
        self._write_trials(verdicts)
        write_rows(Grading, [{**grading, "judged_by_id": verdict.get("id")} for grading, verdict in pairs])
        self.counts += Counter({SCORES: len(pairs), VERDICTS: len(verdicts)})

    def _build_trial(self, study_trial: StudyTrial) -> Row:
        check_trial(study_trial)
        known: Mapping[str, Mapping[Any, Any]] = {"item": self.items, "condition": self.conditions, "wave": self.waves}
        for name, keys in known.items():
            if getattr(study_trial, name) not in keys:
                raise StudyError([f"{study_trial.where}: unknown {name} {getattr(study_trial, name)!r}"])
        if study_trial.dimension is not None and study_trial.dimension not in self.dimensions:
            raise StudyError([f"{study_trial.where}: unknown dimension {study_trial.dimension!r}"])
        run = self._get_run(self.conditions[study_trial.condition], study_trial.wave)
        return self._fill_trial(study_trial, run, sample_idx=study_trial.sample_idx)

    def _fill_trial(self, study_trial: StudyTrial, run: Run, *, sample_idx: int, subject_id: int | None = None) -> Row:
        """Return the row of an answer, or of the verdict on the answer `subject_id`. Its key comes later."""
        is_answer = study_trial.is_done and study_trial.raw_response in (None, study_trial.answer)
        is_unreadable = study_trial.is_done and study_trial.dimension is not None and study_trial.rating is None
        return {
            **{name: getattr(study_trial, name) for name in CALL_COLUMNS},
            "run_id": run.pk,
            "item_id": self.items[study_trial.item],
            "dimension_id": self.dimensions[study_trial.dimension] if study_trial.dimension is not None else None,
            "sample_idx": sample_idx,
            "subject_id": subject_id,
            "status": Trial.Status.DONE if study_trial.is_done else Trial.Status.FAILED,
            "attempts": study_trial.attempts,
            "rating": study_trial.rating,
            "parse_error": "no_rating_found" if is_unreadable else "",
            "answer": study_trial.answer,
            "reasoning": study_trial.reasoning,
            "raw_response": None if is_answer else study_trial.raw_response,
            "messages": study_trial.messages,
            "truncated": study_trial.is_truncated,
            "refused": study_trial.is_refused,
            "from_cache": study_trial.is_cached,
            "error_class": "" if study_trial.is_done else study_trial.error_class or "unknown",
            "error": _redact_error(study_trial.error),
            "claimed_at": study_trial.claimed_at,
            "completed_at": study_trial.completed_at,
        }


def _get_identity(trial: Row) -> Identity:
    return trial["run_id"], trial["item_id"], trial["dimension_id"], trial["sample_idx"]


def _find_stored_trials(trials: list[Row]) -> dict[Identity, Row]:
    """Return the stored trials with the identities of these, with their keys and outcomes. Costs one query."""
    identities = [_get_identity(trial) for trial in trials]
    columns = zip(("runs", "items", "dimensions", "samples"), map(list, zip(*identities, strict=True)), strict=True)
    return {
        identities[place - 1]: dict(zip(("id", *OUTCOME), values, strict=True))
        for place, *values in fetch_rows(FIND_STORED, dict(columns))
    }


def _redact_error(error: str) -> str:
    """Return the error of a foreign tool without keys: a traceback may quote one."""
    return remove_key_patterns(redact(error, list_secrets())) if error else ""


def _build_attempts(study_trial: StudyTrial, trial: Row) -> Iterator[Row]:
    """Yield the calls of a trial. Calls that the source does not describe have an unknown cost."""
    unknown_call = StudyCall(error="" if study_trial.is_done else study_trial.error)
    for place in range(study_trial.attempts - 1):
        call = (*study_trial.earlier_calls, *[unknown_call] * study_trial.attempts)[place]
        yield _build_attempt(call, trial, Attempt.Outcome.TRANSIENT, token=uuid.uuid4())
    token = uuid.uuid4()
    *first_calls, last_call = study_trial.calls or (study_trial,)
    for place, call in enumerate(first_calls):
        outcome = Attempt.Outcome.TRANSIENT if call.error else Attempt.Outcome.OK
        yield _build_attempt(call, trial, outcome, token=token, call=place)
    yield _build_attempt(
        last_call,
        trial,
        Attempt.Outcome.OK if study_trial.is_done else Attempt.Outcome.PERMANENT,
        token=token,
        call=len(first_calls),
        empty=study_trial.is_done and study_trial.answer == "",
        truncated=study_trial.is_truncated,
        refused=study_trial.is_refused,
        unparsed=bool(trial["parse_error"]),
        error_class=trial["error_class"],
        error=trial["error"],
    )


def _build_attempt(call: StudyCall, trial: Row, outcome: Attempt.Outcome, /, **facts: Any) -> Row:
    """Return the row of a call. facts: columns that the call itself does not know."""
    is_failure = outcome not in (Attempt.Outcome.OK, Attempt.Outcome.CACHED)
    times = (call.completed_at, call.claimed_at, trial["completed_at"], trial["claimed_at"], timezone.now())
    return {
        **{name: getattr(call, name) for name in (*CALL_COLUMNS, "list_usd")},
        "trial_id": trial["id"],
        "run_id": trial["run_id"],
        "outcome": Attempt.Outcome.CACHED if call.is_cached and not is_failure else outcome,
        "started_at": call.claimed_at,
        "finished_at": next(filter(None, times)),
        "error_class": "unknown" if is_failure else "",
        "error": _redact_error(call.error),
        **facts,
    }


# --- datasets and designs ---------------------------------------------------------------------------------------------


def save_dataset(dataset: Dataset, items: Sequence[StudyItem], tool: str) -> Dataset:
    """Save the dataset with these items, and approve it. Raise StudyError if its name is in use."""
    if Dataset.objects.filter(slug=dataset.slug).exists():
        raise StudyError([f"the dataset {dataset.slug} exists: choose another name"])
    dataset.save()
    keys = reserve_keys(Item, len(items))
    for start in range(0, len(keys), BATCH):
        batch = list(zip(keys[start : start + BATCH], items[start : start + BATCH], strict=True))
        write_rows(Item, [{
            "id": key, "dataset_id": dataset.pk, "position": position, "key": item.key, "input": item.input,
            "target": item.target, "category": item.category, "choices": item.choices, "metadata": item.metadata,
            "image_id": item.image.sha256 if item.image else None, "grading_scheme": item.grading_scheme,
            "excluded": item.excluded, "note": item.note,
        } for position, (key, item) in enumerate(batch, start)])  # fmt: skip
        write_rows(Norm, [{
            "item_id": key, "dimension": norm.dimension, "mean": norm.mean, "sd": norm.sd, "n": norm.n,
        } for key, item in batch for norm in item.norms])  # fmt: skip
    dataset.approve(by=dataset.created_by, reason=REASON.format(tool=tool))
    return dataset


def refuse_missing_items(items: Iterable[StudyItem], dataset: Dataset) -> None:
    """Raise StudyError if the dataset lacks one of these items."""
    keys = set(dataset.items.values_list("key", flat=True))
    if missing := [item.key for item in items if item.key not in keys]:
        raise StudyError([f"the dataset {dataset} has no item {key!r}: choose another name" for key in missing])


class DesignImport(SourceImport[StudyDesign]):
    """The import of a design: a draft. Raise StudyError if the design cannot be one of this site."""

    def write(self) -> ImportReport:
        design, content = self.source, dict[str, Any](self.source.content)
        self.name = str(content["experiment"])
        notes = list(design.notes)
        counts = {ITEMS: len(design.items)} if design.items else {}
        if Experiment.objects.filter(slug=self.name).exists():
            raise StudyError([f"the experiment {self.name} exists: choose another name"])
        if design.items:
            # A dataset of this name is used if it has all items of the design. Otherwise a new one is created.
            name = str(content["dataset"])
            check_items(design.items)
            if (dataset := Dataset.objects.visible_to(self.owner).named(name).first()) is None:
                new = Dataset(slug=name, title=name, source=REASON.format(tool=design.tool), created_by=self.owner)
                save_dataset(new, design.items, design.tool)
                notes.append(f"The dataset {name} was created with {len(design.items)} items.")
            else:
                refuse_missing_items(design.items, dataset)
                notes.append(f"The dataset {dataset} is here already and is used.")
        if "models" not in content:
            model = LanguageModel.objects.filter(is_active=True).order_by("name").first()
            if model is None:
                raise StudyError(["the files name no model, and this site has none: create a model first"])
            content["models"] = [model.name]
            notes.append(f"The files name no model: the draft has {model.name}. Choose the models of your study.")
        try:
            spec = read_spec(content)
            experiment = create_experiment(spec, by=self.owner, trusted=self.options.trusted, is_import=True)
        except SpecError as error:
            raise StudyError(error.problems) from error
        counts |= {"Models": experiment.language_models.count(), "Prompts": experiment.prompts.count()}
        return ImportReport(f"Design of {design.tool}", experiment.slug, counts=counts, notes=notes)
