"""The design of an experiment: its rows, its cells with their cost ceilings, and the problems that block it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from datasets_app.models import Dataset, Item
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.llm import parameters, prompts
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning import points, token_bounds
from runs_app.planning.conditions import Cell, Facet, condition_identity, cross_facets
from runs_app.planning.points import PointSize
from runs_app.pricing import costs


@dataclass
class Design:
    """The crossing of an experiment, read once. `problems` block planning; `warnings` do not."""

    experiment: Experiment
    models: list[LanguageModel]
    prompts: list[Prompt]
    samplers: list[Sampler]
    dimensions: list[Dimension]
    only: frozenset[str] | None = field(default=None, kw_only=True)  # Ids of the chosen cells; None is all.
    kept: frozenset[Any] = field(default=frozenset(), kw_only=True)  # Rows that may be archived: launched before.
    _sizes: dict[tuple[int, int], int] = field(default_factory=dict, init=False)  # Tokens, by keys of model and prompt.

    @classmethod
    def of(cls, experiment: Experiment, *, policy: str | None = None, kept: Collection[Any] = ()) -> Design:
        """Read the design of an experiment. `policy` replaces its budget policy."""
        if policy is not None and policy != experiment.budget_policy:
            experiment = copy(experiment)
            experiment.budget_policy = policy
        return cls(
            experiment,
            list(experiment.language_models.select_related("endpoint").order_by("name")),
            list(experiment.prompts.order_by("name", "version")),
            list(experiment.samplers.order_by("name", "version")),
            list(experiment.dimensions.order_by("pk")),
            kept=frozenset(kept),
        )

    @property
    def items(self) -> QuerySet[Item]:
        return self.experiment.dataset.items.active()

    @cached_property
    def n_items(self) -> int:
        return self.items.count()

    @property
    def is_dev(self) -> bool:
        """Return whether the budget policy is `dev`: only the first items are asked, and call by call."""
        return self.experiment.budget_policy == Experiment.BudgetPolicy.DEV

    @cached_property
    def dev_item_ids(self) -> list[int] | None:
        """Return the keys of the items that the policy `dev` asks, in dataset order; None if all items are asked."""
        if not self.is_dev:
            return None
        return list(self.items.order_by("position", "pk").values_list("pk", flat=True)[: self.experiment.dev_items])

    @property
    def n_asked_items(self) -> int:
        return self.n_items if self.dev_item_ids is None else len(self.dev_item_ids)

    @property
    def samples(self) -> int:
        """Return the repetitions of each cell that the budget policy asks."""
        samples = self.experiment.samples
        return min(samples, self.experiment.dev_samples or samples) if self.is_dev else samples

    @property
    def policy_text(self) -> str:
        """Return the scope of the policy `dev`: `the first 2 of 600 items, 1 of 3 samples`; empty for `full`."""
        if not self.is_dev:
            return ""
        samples = f", {self.samples} of {self.experiment.samples} samples" if self.experiment.samples > 1 else ""
        return f"the first {self.n_asked_items:,} of {self.n_items:,} items{samples}"

    @property
    def questions(self) -> int:
        """Return items times dimensions: the trials of one repetition of a cell."""
        return self.n_asked_items * max(1, len(self.dimensions))

    @property
    def trials_per_cell(self) -> int:
        """Return the trials of one cell under the budget policy. For an adaptive design this is the maximum."""
        return self.questions * self.samples if self.is_dev else self.whole_trials_per_cell

    @property
    def whole_trials_per_cell(self) -> int:
        """Return the trials of one cell under the policy `full`."""
        if self.adaptive is None:
            return self.n_items * max(1, len(self.dimensions)) * self.experiment.samples
        return sum(point.most(self.adaptive, self.experiment.samples) for point in self.points)

    @cached_property
    def adaptive(self) -> AdaptiveSpec | None:
        return points.read_adaptive_spec(self.experiment)

    @cached_property
    def points(self) -> list[PointSize]:
        """Return the points that the items form; empty if the design is not adaptive."""
        return (
            points.measure_points(self.experiment.dataset_id, self.adaptive, self.dimensions) if self.adaptive else []
        )

    @cached_property
    def expected_share(self) -> float:
        """Return the expected share of the maximum trials, if every accuracy or spread of ratings is equally likely.

        The share is 1 if all cases are asked.
        """
        if self.adaptive is None or self.is_dev or not self.trials_per_cell:
            return 1.0
        asked = sum(point.expected(self.adaptive, self.experiment.samples) for point in self.points)
        return asked / self.trials_per_cell

    def narrowed(self, ids: Collection[str]) -> Design:
        """Return the design of only these cells, by their ids, with the rows that they need."""
        cells = [cell for cell in self.cells if cell.condition_id in ids]
        return Design(
            self.experiment,
            [row for row in self.models if row.pk in {cell.model.key for cell in cells}],
            [row for row in self.prompts if row.pk in {cell.prompt.key for cell in cells}],
            [row for row in self.samplers if row.pk in {cell.sampler.key for cell in cells}],
            self.dimensions,
            only=frozenset(ids),
            kept=self.kept,
        )

    @property
    def cell_ids(self) -> dict[str, str]:
        """Return the cell ids by the ids that people see. A planned cell is shown with the id of its condition."""
        planned: dict[tuple[Any, ...], str] = {}
        if self.experiment.pk:
            rows = self.experiment.conditions.generating().values_list(
                "condition_id", "model_id", "prompt_id", "sampler_id"
            )
            planned = {(condition_identity(known), *keys): known for known, *keys in rows}
        ids = {}
        for cell in self.cells:
            keys = (facet.key for facet in cell.facets.values())
            ids[planned.get((condition_identity(cell.condition_id), *keys), cell.condition_id)] = cell.condition_id
        return ids

    @cached_property
    def cells(self) -> list[Cell]:
        """Return the cells of the crossing, or the chosen ones of a narrowed design."""
        return [cell for cell in self._crossing if self.only is None or cell.condition_id in self.only]

    @property
    def _crossing(self) -> list[Cell]:
        return cross_facets(
            [Facet(model.name, model.identity, model.pk) for model in self.models],
            [Facet(prompt.name, prompt.content, prompt.pk) for prompt in self.prompts],
            [Facet(sampler.name, sampler.content, sampler.pk) for sampler in self.samplers],
        )

    def input_tokens(self, cell: Cell) -> int:
        """Return the tokens of the largest request of this cell."""
        return self._largest(self._model(cell), self._prompt(cell))

    def _largest(self, model: LanguageModel, prompt: Prompt) -> int:
        known = self._sizes.get((model.pk, prompt.pk))
        if known is None:
            known = token_bounds.bound_input_tokens(model, prompt, self.experiment.dataset, self.dimensions)
            self._sizes[model.pk, prompt.pk] = known
        return known

    @property
    def shows_images(self) -> bool:
        return any(prompts.uses_variable(prompt.messages, prompts.IMAGE) for prompt in self.prompts)

    def ceiling(self, cell: Cell) -> Decimal | None:
        """Return the most that one call of this cell can cost, in US dollars; None if a price or a limit is unknown."""
        model, sampler = self._model(cell), self._sampler(cell)
        limit = sampler.output_ceiling(model.max_output_tokens)
        return costs.ceiling_per_call(self.prices(cell), self.input_tokens(cell), limit)

    def call_bounds(self, cell: Cell) -> costs.CallBounds:
        return costs.CallBounds(self.ceiling(cell), self.input_tokens(cell), self._sampler(cell).output_ceiling())

    def prices(self, cell: Cell) -> costs.Prices:
        """Return the prices of a call of this cell, with the batch discount if it is batched."""
        return self._model(cell).prices.in_batch(self.discount(cell))

    def discount(self, cell: Cell) -> Decimal:
        """Return the share of the price that a call of this cell saves in a batch."""
        return self._model(cell).batch_discount if self.is_batched(cell) else Decimal(0)

    def is_batched(self, cell: Cell) -> bool:
        """Return whether its calls go out in batches.

        The experiment must ask for it, and the endpoint must accept it.
        """
        return self.experiment.batch and not self.is_dev and self._model(cell).endpoint.takes_batches

    def _model(self, cell: Cell) -> LanguageModel:
        return next(model for model in self.models if model.pk == cell.model.key)

    def _prompt(self, cell: Cell) -> Prompt:
        return next(prompt for prompt in self.prompts if prompt.pk == cell.prompt.key)

    def _sampler(self, cell: Cell) -> Sampler:
        return next(sampler for sampler in self.samplers if sampler.pk == cell.sampler.key)

    @property
    def unknown_prices(self) -> list[str]:
        return [model.name for model in self.models if not model.prices.known]

    def problems(self) -> list[str]:
        """Return the problems that block planning, as sentences that name the setting to correct."""
        rounds = points.find_problems(self.adaptive, self.points, self.dimensions) if self.adaptive else []
        return [
            *self._unready(),
            *self._empty(),
            *self._unusable(),
            *self._mismatched(),
            *self._unbounded(),
            *rounds,
        ]

    def warnings(self) -> list[str]:
        """Return warnings about allowed settings that look like a mistake."""
        of_prompts = [f"prompt {prompt}: {said}" for prompt in self.prompts for said in self._warnings_for(prompt)]
        of_batches = self._warnings_of_batches() if self.experiment.batch and not self.is_dev else ()
        return [*of_prompts, *of_batches, *self._warnings_of_space()]

    def _warnings_of_space(self) -> Iterator[str]:
        if self.adaptive is None and (self.experiment.dataset.recipe or {}).get("stopping_rules"):
            yield (
                f"the space of {self.experiment.dataset} has stopping rules, and this design runs every case; "
                "choose Use the dataset's stopping rules, or write adaptive: dataset"
            )

    def _warnings_of_batches(self) -> Iterator[str]:
        for model in self.models:
            if not model.endpoint.takes_batches:
                yield f"model {model} is asked call by call: its endpoint {model.endpoint} takes no batches"
        if self.adaptive and any(model.endpoint.takes_batches for model in self.models):
            rules = [self.adaptive, *(self.adaptive.for_task(name) for name in self.adaptive.tasks)]
            rounds = max(-(-rule.max // rule.round) for rule in rules)
            yield f"batch and adaptive: each round is a batch of up to a day, and a point has up to {rounds:,} of them"

    def _warnings_for(self, prompt: Prompt) -> Iterator[str]:
        has_text, has_images = self._has_text_and_images
        yield from prompts.find_warnings(prompt.messages, items_have_text=has_text, items_have_images=has_images)
        for name, lacking in self._missing(prompt):
            if lacking < self.n_items:
                yield f"{{{{{name}}}}} has no value for {lacking} of {self.n_items} items; those trials fail"

    @cached_property
    def _has_text_and_images(self) -> tuple[bool, bool]:
        return self.items.exclude(input="").exists(), self.items.exclude(image=None).exists()

    def _missing(self, prompt: Prompt) -> Iterator[tuple[str, int]]:
        return token_bounds.find_missing_variables(prompt, self.items)

    def _unready(self) -> Iterator[str]:
        dataset = self.experiment.dataset
        if self.experiment.status == Experiment.Status.ARCHIVED:
            yield f"experiment {self.experiment} is archived"
        if dataset.status != Dataset.Status.APPROVED:
            yield f"dataset {dataset} is {dataset.status}; it must be approved"
        elif not self.n_items:
            yield f"dataset {dataset} has no active items"

    def _empty(self) -> Iterator[str]:
        for axis, rows in (("model", self.models), ("prompt", self.prompts), ("sampler", self.samplers)):
            if not rows:
                yield f"the experiment has no {axis}"

    def _unusable(self) -> Iterator[str]:
        for model in self.models:
            if not model.is_active:
                yield f"model {model} is not active"
            if not model.endpoint.is_active:
                yield f"endpoint {model.endpoint} of model {model} is not active"
        for prompt in self.prompts:
            if prompt.status != Prompt.Status.APPROVED and prompt not in self.kept:
                yield f"prompt {prompt} is {prompt.status}; a curator must approve it before it is used"
        for row in (*self.samplers, *self.dimensions):
            if row.status == row.Status.ARCHIVED and row not in self.kept:
                yield f"{row._meta.verbose_name} {row} is archived"

    def _mismatched(self) -> Iterator[str]:
        for prompt in self.prompts:
            if prompt.answer_format != Prompt.AnswerFormat.TEXT and not self.dimensions:
                yield f"prompt {prompt} asks for a rating, and the experiment has no dimension"
            blind = [model.name for model in self.models if not model.sees_images]
            if blind and prompts.uses_variable(prompt.messages, prompts.IMAGE):
                yield f"prompt {prompt} shows an image, and model {blind[0]} does not see images"
            for name, lacking in self._missing(prompt):
                if self.n_items and lacking == self.n_items:
                    yield f"prompt {prompt}: {{{{{name}}}}} has no value for any item"
            key, size = token_bounds.find_longest_request(prompt, self.experiment.dataset, self.dimensions)
            if size > prompts.MAX_CHARS:
                yield (
                    f"prompt {prompt}: the request about item {key} would have {size:,} characters; "
                    f"at most {prompts.MAX_CHARS:,} are sent"
                )
        for provider in dict.fromkeys(model.endpoint.provider for model in self.models):
            for sampler in self.samplers:
                if problem := parameters.find_problem(provider, sampler.content):
                    yield f"sampler {sampler}: {problem}"

    def _unbounded(self) -> Iterator[str]:
        """Yield the models and samplers without a cost ceiling. Under a budget, every call needs one."""
        if self.experiment.max_usd is None:
            return
        for name in self.unknown_prices:
            yield f"unknown price: model {name} has no price, and the experiment has a budget"
        for model in self.models:
            if model.prices.free or not model.prices.known or model.max_output_tokens:
                continue
            for sampler in self.samplers:
                if not sampler.bounds_output:
                    yield (
                        f"no ceiling: sampler {sampler} sets no max_tokens, model {model} has no max_output_tokens, "
                        "and the experiment has a budget"
                    )
