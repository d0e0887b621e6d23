"""Asking a model for the rubric of each item: one call an item, under the experiment's budget, by the same engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from datasets_app.models.history import Actor
from evalsite.lib.hashing import condition_id, slugify_name
from grading_app.models import Rubric
from runs_app import prompts
from runs_app.costing import costs
from runs_app.designs import sizing
from runs_app.designs.crossed import USUAL_OUTPUT
from runs_app.designs.manifests import write_manifest
from runs_app.designs.planning import PlanError
from runs_app.designs.reserving import set_aside
from runs_app.designs.versioning import next_version
from runs_app.engine.starting import start
from runs_app.models import Condition, Experiment, LanguageModel, Prompt, Run, Sampler, TextSet, Wave
from runs_app.waking import wake

INSERT = """INSERT INTO runs_app_trial (run_id, sample_idx, item_id)
SELECT %(run)s, 0, i.id FROM datasets_app_item i
WHERE i.dataset_id = %(dataset)s AND NOT i.excluded
AND NOT EXISTS (SELECT FROM runs_app_trial t WHERE t.run_id = %(run)s AND t.item_id = i.id)
ORDER BY i.position, i.id"""


@dataclass(frozen=True)
class Writer:
    """A model that is asked for rubrics, by a template, over the items of an experiment."""

    experiment: Experiment
    template: Rubric
    model: LanguageModel
    sampler: Sampler

    @property
    def content(self) -> dict[str, Any]:
        """The snapshot that is asked, free of names."""
        return {
            "model": self.model.identity,
            "sampler": self.sampler.content,
            "prompt": {"messages": self.template.messages, "answer_format": "text"},
        }

    @property
    def condition_id(self) -> str:
        return condition_id(
            slugify_name(f"{self.model.name}-{self.template.name}"), {**self.content, "stage": "rubric"}
        )

    @property
    def limit(self) -> int | None:
        """Tokens of the longest rubric that is asked for."""
        return self.sampler.output_ceiling(self.model.max_output_tokens)

    @property
    def request_tokens(self) -> int:
        prompt = Prompt(messages=self.template.messages, answer_format="text")
        return sizing.largest_input(self.model, prompt, self.experiment.dataset, [], {})

    @property
    def ceiling(self) -> Decimal | None:
        """US dollars of one call at most; None where it is unknown."""
        return costs.ceiling_per_call(self.model.prices, self.request_tokens, self.limit)

    @property
    def to_do(self) -> int:
        """Calls still to make."""
        run = Run.objects.filter(condition__condition_id=self.condition_id, experiment=self.experiment).first()
        return max(0, self.experiment.dataset.active_count - (run.n_done if run else 0))

    def problems(self) -> Iterator[str]:
        experiment, model = self.experiment, self.model
        if experiment.status != Experiment.Status.ACTIVE:
            yield f"experiment {experiment} is {experiment.status}: launch it, or a pilot of it, first"
        if self.template.kind != Rubric.Kind.WRITER or self.template.status != Rubric.Status.APPROVED:
            yield f"{self.template} is no approved template for writing rubrics"
        if not (model.is_active and model.endpoint.is_active):
            yield f"model {model}, or its endpoint {model.endpoint}, is not active"
        if prompts.uses(self.template.messages, prompts.IMAGE) and not model.sees_images:
            yield f"{self.template} shows an image, and model {model} does not see images"
        if experiment.max_usd is not None and not model.prices.free and self.ceiling is None:
            yield f"no ceiling: model {model} has no price or no longest answer, and the experiment has a budget"


def ask_for_rubrics(writer: Writer, *, name: str, by: Any) -> TextSet:
    """Ask for the rubric of every item that has none by this writer yet, and start; what it writes goes to the set.

    Returns a draft of this name: the one that already waits for this writer, or a new version. PlanError where it
    cannot be, and then nothing was changed.
    """
    with transaction.atomic():
        Experiment.objects.select_for_update(no_key=True).get(pk=writer.experiment.pk)
        if problems := list(writer.problems()):
            raise PlanError(problems)
        condition = _condition(writer)
        _start(writer, condition, by)
        texts = _draft(writer, condition, name, by)
    wake()
    return texts


def _condition(writer: Writer) -> Condition:
    made, _ = Condition.objects.get_or_create(
        experiment=writer.experiment,
        condition_id=writer.condition_id,
        defaults={
            "stage": Condition.Stage.RUBRIC,
            "model": writer.model,
            "sampler": writer.sampler,
            "content": writer.content,
        },
    )
    return made


def _start(writer: Writer, condition: Condition, by: Actor) -> None:
    wave, _ = Wave.objects.get_or_create(experiment=writer.experiment, number=0)
    reserves = {
        "reserve_usd": set_aside(writer.ceiling),
        "request_tokens": writer.request_tokens,
        "reserve_tokens": writer.request_tokens + min(writer.limit or USUAL_OUTPUT, USUAL_OUTPUT),
    }
    run, _ = Run.objects.select_for_update(of=("self",)).get_or_create(
        condition=condition,
        wave=wave,
        defaults={
            "experiment": writer.experiment,
            "max_concurrency": writer.experiment.max_concurrency,
            **reserves,
        },
    )
    with connection.cursor() as cursor:
        cursor.execute(INSERT, {"run": run.pk, "dataset": writer.experiment.dataset_id})
        added = int(cursor.rowcount)
    if added:
        Run.objects.filter(pk=run.pk).update(n_pending=F("n_pending") + added)
        start(
            Run.objects.filter(pk=run.pk),
            sources=[Run.Status.PLANNED, Run.Status.DONE],
            by=by,
            reason=f"{added} rubrics were asked for",
        )
        write_manifest(writer.experiment, by=by, wave=wave.label)


def _draft(writer: Writer, condition: Condition, name: str, by: Any) -> TextSet:
    known: TextSet | None = TextSet.objects.filter(
        name=name, written_by=condition, status=TextSet.Status.DRAFT, texts=None
    ).first()
    if known is not None:
        return known
    made: TextSet = TextSet.objects.create(
        name=name,
        version=next_version(TextSet, name),
        dataset=writer.experiment.dataset,
        written_by=condition,
        created_by=by,
    )
    return made
