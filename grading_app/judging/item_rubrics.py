"""Item rubrics written by a model: one call per item, by the engine, on the experiment's budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from datasets_app.models import Item
from evalsite.lib.history import record_changes
from evalsite.lib.text.hashing import build_condition_id, slugify_name
from grading_app.models import Rubric
from runs_app.llm import prompts
from runs_app.models import Condition, Experiment, ItemText, LanguageModel, Prompt, Run, Sampler, TextSet
from runs_app.models.trials import BLANK
from runs_app.planning import token_bounds
from runs_app.planning.manifests import write_manifest
from runs_app.planning.work import PlanError, add_trials, get_or_create_run, refuse_cancelled
from runs_app.pricing import costs
from runs_app.taskqueue.enqueue import enqueue_drains

INSERT = """INSERT INTO runs_app_trial (run_id, sample_idx, item_id)
SELECT %(run)s, 0, i.id FROM datasets_app_item i
WHERE i.dataset_id = %(dataset)s AND NOT i.excluded
AND NOT EXISTS (SELECT FROM runs_app_trial t WHERE t.run_id = %(run)s AND t.item_id = i.id)
ORDER BY i.position, i.id"""


@dataclass(frozen=True)
class RubricWriter:
    """A model that writes rubrics from a template for the items of an experiment."""

    experiment: Experiment
    template: Rubric
    model: LanguageModel
    sampler: Sampler

    @property
    def content(self) -> dict[str, Any]:
        """Return the snapshot that identifies the writer's calls, without names."""
        return {
            "model": self.model.identity,
            "sampler": self.sampler.content,
            "prompt": {"messages": self.template.messages, "answer_format": "text"},
        }

    @property
    def condition_id(self) -> str:
        return build_condition_id(
            slugify_name(f"{self.model.name}-{self.template.name}"), {**self.content, "stage": "rubric"}
        )

    @property
    def limit(self) -> int | None:
        """Return the output limit of a rubric in tokens, or None."""
        return self.sampler.compute_output_ceiling(self.model.max_output_tokens)

    @property
    def request_tokens(self) -> int:
        prompt = Prompt(messages=self.template.messages, answer_format="text")
        return token_bounds.bound_input_tokens(self.model, prompt, self.experiment.dataset, [], {})

    @property
    def ceiling(self) -> Decimal | None:
        """Return the highest cost of one call in US dollars, or None if it is unknown."""
        return costs.compute_ceiling(self.model.prices, self.request_tokens, self.limit)

    @property
    def bounds(self) -> costs.CallBounds:
        return costs.CallBounds(self.ceiling, self.request_tokens, self.limit)

    @property
    def to_do(self) -> int:
        """Return the number of calls still to make."""
        run = Run.objects.filter(condition__condition_id=self.condition_id, experiment=self.experiment).first()
        return max(0, self.experiment.dataset.active_count - (run.n_done if run else 0))

    def find_problems(self) -> Iterator[str]:
        experiment, model = self.experiment, self.model
        if experiment.status != Experiment.Status.ACTIVE:
            yield f"experiment {experiment} is {experiment.status}: launch it, or a pilot of it, first"
        if self.template.kind != Rubric.Kind.WRITER or self.template.status != Rubric.Status.APPROVED:
            yield f"{self.template} is not an approved template for item rubrics"
        if not (model.is_active and model.endpoint.is_active):
            yield f"model {model}, or its endpoint {model.endpoint}, is not active"
        if prompts.uses_variable(self.template.messages, prompts.IMAGE) and not model.sees_images:
            yield f"{self.template} shows an image, and model {model} does not see images"
        if experiment.max_usd is not None and not model.prices.is_free and self.ceiling is None:
            yield f"no ceiling: model {model} has no price or no output limit, and the experiment has a budget"


def request_rubrics(writer: RubricWriter, *, name: str, by: Any) -> TextSet:
    """Request this writer's missing rubrics, start the run, and return the draft text set.

    The draft is this writer's empty draft with this name, or a new version.
    Raise PlanError, and change nothing, if the request is impossible.
    """
    with transaction.atomic():
        Experiment.objects.select_for_update(no_key=True).get(pk=writer.experiment.pk)
        if problems := list(writer.find_problems()):
            raise PlanError(problems)
        condition, _ = Condition.objects.get_or_create(
            experiment=writer.experiment,
            condition_id=writer.condition_id,
            defaults={
                "stage": Condition.Stage.RUBRIC,
                "model": writer.model,
                "sampler": writer.sampler,
                "content": writer.content,
            },
        )
        run = get_or_create_run(condition, writer.experiment.get_first_wave(), writer.bounds)
        refuse_cancelled(run, "delete that run to request the rubrics again")
        if add_trials(run, partial(_insert_trials, writer), by=by, reason="{n} rubrics were requested"):
            write_manifest(writer.experiment, by=by, wave=run.wave.label)
        texts = _create_draft(writer, condition, name, by)
    enqueue_drains()
    return texts


def _insert_trials(writer: RubricWriter, run: Run) -> int:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, {"run": run.pk, "dataset": writer.experiment.dataset_id})
        return int(cursor.rowcount)


def _create_draft(writer: RubricWriter, condition: Condition, name: str, by: Any) -> TextSet:
    existing: TextSet | None = TextSet.objects.filter(
        name=name, written_by=condition, status=TextSet.Status.DRAFT, texts=None
    ).first()
    if existing is not None:
        return existing
    draft: TextSet = TextSet.objects.create(
        name=name,
        version=TextSet.get_next_version(name),
        dataset=writer.experiment.dataset,
        written_by=condition,
        created_by=by,
    )
    return draft


COLLECT = f"""INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id)
SELECT %(texts)s, t.item_id, btrim(t.answer, E' \\t\\r\\n'), t.id
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
WHERE r.condition_id = %(condition)s AND t.status = 'done' AND NOT t.truncated AND NOT t.refused
AND NOT {BLANK.format(t="t")}
ORDER BY t.item_id, t.id
ON CONFLICT (text_set_id, item_id) DO NOTHING"""  # noqa: S608 - constants only


def collect_texts(texts: TextSet) -> int:
    """Add the writer's new texts, and return their number.

    Empty, truncated and refused texts stay missing.
    """
    with transaction.atomic():
        locked: TextSet = TextSet.objects.select_for_update().get(pk=texts.pk)
        if locked.status != TextSet.Status.DRAFT or locked.written_by_id is None:
            return 0
        with connection.cursor() as cursor:
            cursor.execute(COLLECT, {"texts": locked.pk, "condition": locked.written_by_id})
            added = int(cursor.rowcount)
        if added:
            locked.save(update_fields=["content_hash"])
    return added


def collect_all_texts(experiment: Experiment) -> int:
    """Collect the texts of all drafts whose writer runs in this experiment. Return their number."""
    drafts = TextSet.objects.filter(written_by__experiment=experiment, status=TextSet.Status.DRAFT)
    return sum(collect_texts(texts) for texts in drafts)


MAX_TEXT_LENGTH = 50_000  # Characters.
COPY = """INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id, edited_by_id, edited_at)
SELECT %(new)s, item_id, text, trial_id, edited_by_id, edited_at FROM runs_app_itemtext WHERE text_set_id = %(old)s"""


def correct_text(texts: TextSet, item: Item, text: str, *, by: Any, reason: str) -> TextSet:
    """Replace the text of this item, and return the version that holds the correction.

    A draft with corrections takes further corrections. A model's own draft and an approved version stay unchanged, and
    the correction goes to the next version.
    Raise ValueError for a blank or too long text, or if a newer version exists.
    """
    cleaned = text.replace("\r\n", "\n").strip()
    if not cleaned or len(cleaned) > MAX_TEXT_LENGTH:
        raise ValueError(f"Enter a text of at most {MAX_TEXT_LENGTH:,} characters.")
    with transaction.atomic():
        locked: TextSet = TextSet.objects.select_for_update().get(pk=texts.pk)
        if newer := TextSet.objects.filter(name=locked.name, version__gt=locked.version).order_by("-version").first():
            raise ValueError(f"{newer} is newer. Correct that version.")
        target = locked if _allows_corrections(locked) else _create_next_version(locked, by=by, reason=reason)
        existing = target.texts.filter(item=item).first()
        before = existing.text if existing else ""
        ItemText.objects.update_or_create(
            text_set=target, item=item, defaults={"text": cleaned, "edited_by": by, "edited_at": timezone.now()}
        )
        target.save(update_fields=["content_hash"])
        record_changes([(target, before[:200], cleaned[:200])], by=by, reason=reason, aspect=f"text of {item.key}"[:40])
    return target


def _allows_corrections(texts: TextSet) -> bool:
    if texts.status != TextSet.Status.DRAFT:
        return False
    return texts.written_by_id is None or texts.texts.exclude(edited_at=None).exists()


def _create_next_version(texts: TextSet, *, by: Any, reason: str) -> TextSet:
    new = texts.create_new_version(by=by)
    with connection.cursor() as cursor:
        cursor.execute(COPY, {"new": new.pk, "old": texts.pk})
    if texts.status == TextSet.Status.DRAFT:
        texts.retire(by=by, reason=f"corrected as {new}: {reason}")
    return new
