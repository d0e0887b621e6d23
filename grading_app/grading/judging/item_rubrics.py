"""Item rubrics written by a model: one call per item, by the engine, on the experiment's budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import connection, transaction

from evalsite.lib.text.hashing import build_condition_id, slugify_name
from grading_app.models import Rubric
from runs_app.llm import prompts
from runs_app.models import Condition, Experiment, LanguageModel, Prompt, Run, Sampler, TextSet
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
        return self.model.prices.compute_ceiling(self.request_tokens, self.limit)

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

    def request(self, *, name: str, by: Any) -> TextSet:
        """Request this writer's missing rubrics, start the run, and return the draft text set.

        The draft is this writer's empty draft with this name, or a new version.
        Raise PlanError, and change nothing, if the request is impossible.
        """
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=self.experiment.pk)
            if problems := list(self.find_problems()):
                raise PlanError(problems)
            condition, _ = Condition.objects.get_or_create(
                experiment=self.experiment,
                condition_id=self.condition_id,
                defaults={
                    "stage": Condition.Stage.RUBRIC,
                    "model": self.model,
                    "sampler": self.sampler,
                    "content": self.content,
                },
            )
            run = get_or_create_run(condition, self.experiment.get_first_wave(), self.bounds)
            refuse_cancelled(run, "delete that run to request the rubrics again")
            if add_trials(run, self._insert_trials, by=by, reason="{n} rubrics were requested"):
                write_manifest(self.experiment, by=by, wave=run.wave.label)
            texts = self._create_draft(condition, name, by)
        enqueue_drains()
        return texts

    def _insert_trials(self, run: Run) -> int:
        with connection.cursor() as cursor:
            cursor.execute(INSERT, {"run": run.pk, "dataset": self.experiment.dataset_id})
            return int(cursor.rowcount)

    def _create_draft(self, condition: Condition, name: str, by: Any) -> TextSet:
        existing: TextSet | None = TextSet.objects.filter(
            name=name, written_by=condition, status=TextSet.Status.DRAFT, texts=None
        ).first()
        if existing is not None:
            return existing
        draft: TextSet = TextSet.objects.create(
            name=name,
            version=TextSet.get_next_version(name),
            dataset=self.experiment.dataset,
            written_by=condition,
            created_by=by,
        )
        return draft


def collect_all_texts(experiment: Experiment) -> int:
    """Collect the texts of all drafts whose writer runs in this experiment. Return their number."""
    drafts = TextSet.objects.filter(written_by__experiment=experiment, status=TextSet.Status.DRAFT)
    return sum(texts.collect() for texts in drafts)
