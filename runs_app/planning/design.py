"""The design of an experiment: its rows, its cells with their cost ceilings, and the problems that block it.

The cells cross every model with every prompt and every sampler. A cell's content identifies it: what the model sees. It
excludes repetitions, epochs, speed, time-outs and the endpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any

from django.db.models import QuerySet

from datasets_app.models import Dataset, Item
from evalsite.lib.text.hashing import build_condition_id, hash_content, slugify_name
from evalsite.lib.text.number_format import format_money
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_options import BudgetPolicy
from runs_app.llm import parameters, prompts
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning import points, token_bounds
from runs_app.planning.points import PointSize
from runs_app.pricing import costs
from runs_app.scorers.scoring_rules import get_scorer_name


@dataclass(frozen=True)
class Facet:
    """One choice along one axis: its name for people, its content for the identity, and the key of its row."""

    name: str
    content: Mapping[str, Any]
    key: int | None = None

    @cached_property
    def content_hash(self) -> str:
        return hash_content(self.content)


@dataclass(frozen=True)
class Cell:
    """One model with one prompt and one sampler."""

    model: Facet
    prompt: Facet
    sampler: Facet

    @property
    def facets(self) -> dict[str, Facet]:
        return {"model": self.model, "prompt": self.prompt, "sampler": self.sampler}

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of the condition, without names: {"model": ..., "prompt": ..., "sampler": ...}."""
        return {axis: dict(facet.content) for axis, facet in self.facets.items()}

    @property
    def slug(self) -> str:
        return "_".join(slugify_name(facet.name) for facet in self.facets.values())

    @cached_property
    def condition_id(self) -> str:
        """Return an id such as `model_prompt_sampler--hash12`."""
        return build_condition_id(self.slug, self.content)


def cross_facets(models: Iterable[Facet], prompts: Iterable[Facet], samplers: Iterable[Facet]) -> list[Cell]:
    """Return every cell of the crossing. Models vary slowest, samplers fastest."""
    return [Cell(*cell) for cell in product(models, prompts, samplers)]


def get_condition_hash(condition: str) -> str:
    """Return the hash in a condition's id, after `--`."""
    return condition.rpartition("--")[2]


@dataclass
class Design:
    """The crossing of an experiment, loaded once.

    `only` has the ids of the chosen cells; None is all. `launched_rows` may be archived, because they were launched
    before.
    """

    experiment: Experiment
    models: list[LanguageModel]
    prompts: list[Prompt]
    samplers: list[Sampler]
    dimensions: list[Dimension]
    only: frozenset[str] | None = field(default=None, kw_only=True)
    launched_rows: frozenset[Any] = field(default=frozenset(), kw_only=True)
    _sizes: dict[tuple[int, int], int] = field(default_factory=dict, init=False)  # Tokens, by keys of model and prompt.

    @classmethod
    def load(cls, experiment: Experiment, *, policy: str | None = None, launched_rows: Collection[Any] = ()) -> Design:
        """Load the design of an experiment. `policy` replaces its budget policy."""
        if policy is not None and policy != experiment.budget_policy:
            experiment = copy(experiment)
            experiment.budget_policy = policy
        return cls(
            experiment,
            list(experiment.language_models.select_related("endpoint").order_by("name")),
            list(experiment.prompts.order_by("name", "version")),
            list(experiment.samplers.order_by("name", "version")),
            list(experiment.dimensions.order_by("pk")),
            launched_rows=frozenset(launched_rows),
        )

    @property
    def items(self) -> QuerySet[Item]:
        return self.experiment.dataset.items.active()

    @cached_property
    def n_items(self) -> int:
        return self.items.count()

    @property
    def is_dev(self) -> bool:
        """Return whether the budget policy is `dev`, which plans only the first items and no batches."""
        return self.experiment.budget_policy == BudgetPolicy.DEV

    @cached_property
    def dev_item_ids(self) -> list[int] | None:
        """Return the keys of the items of the policy `dev`, in dataset order; None if all items are planned."""
        if not self.is_dev:
            return None
        return list(self.items.order_by("position", "pk").values_list("pk", flat=True)[: self.experiment.dev_items])

    @property
    def n_planned_items(self) -> int:
        return self.n_items if self.dev_item_ids is None else len(self.dev_item_ids)

    @property
    def samples(self) -> int:
        """Return the number of repetitions of each cell under the budget policy."""
        samples = self.experiment.samples
        return min(samples, self.experiment.dev_samples or samples) if self.is_dev else samples

    @property
    def policy_text(self) -> str:
        """Return the scope of the policy `dev`: `the first 2 of 600 items, 1 of 3 samples`; empty for `full`."""
        if not self.is_dev:
            return ""
        samples = f", {self.samples} of {self.experiment.samples} samples" if self.experiment.samples > 1 else ""
        return f"the first {self.n_planned_items:,} of {self.n_items:,} items{samples}"

    @property
    def questions(self) -> int:
        """Return the number of trials of one repetition of a cell: items times dimensions."""
        return self.n_planned_items * max(1, len(self.dimensions))

    @property
    def trials_per_cell(self) -> int:
        """Return the number of trials of a cell under the budget policy, or the maximum for an adaptive design."""
        return self.questions * self.samples if self.is_dev else self.whole_trials_per_cell

    @property
    def whole_trials_per_cell(self) -> int:
        """Return the number of trials of a cell under the policy `full`."""
        if self.adaptive is None:
            return self.n_items * max(1, len(self.dimensions)) * self.experiment.samples
        return sum(point.get_max_cases(self.adaptive, self.experiment.samples) for point in self.points)

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
        """Return the expected share of the maximum number of trials; 1 if all cases run.

        Every accuracy, or every spread of ratings, is taken as equally likely.
        """
        if self.adaptive is None or self.is_dev or not self.trials_per_cell:
            return 1.0
        expected = sum(point.compute_expected_cases(self.adaptive, self.experiment.samples) for point in self.points)
        return expected / self.trials_per_cell

    def narrow_to(self, ids: Collection[str]) -> Design:
        """Return the design with only these cells, by their ids, and the rows that they need."""
        cells = [cell for cell in self.cells if cell.condition_id in ids]
        return Design(
            self.experiment,
            [row for row in self.models if row.pk in {cell.model.key for cell in cells}],
            [row for row in self.prompts if row.pk in {cell.prompt.key for cell in cells}],
            [row for row in self.samplers if row.pk in {cell.sampler.key for cell in cells}],
            self.dimensions,
            only=frozenset(ids),
            launched_rows=self.launched_rows,
        )

    @property
    def cell_ids(self) -> dict[str, str]:
        """Return the cell ids by the ids that pages show. A planned cell is shown with the id of its condition."""
        planned: dict[tuple[Any, ...], str] = {}
        if self.experiment.pk:
            rows = self.experiment.answer_conditions.values_list("condition_id", "model_id", "prompt_id", "sampler_id")
            planned = {(get_condition_hash(condition_id), *keys): condition_id for condition_id, *keys in rows}
        ids = {}
        for cell in self.cells:
            keys = (facet.key for facet in cell.facets.values())
            ids[planned.get((get_condition_hash(cell.condition_id), *keys), cell.condition_id)] = cell.condition_id
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

    def get_input_tokens(self, cell: Cell) -> int:
        """Return the tokens of the largest request of this cell."""
        model, prompt = self._get_model(cell), next(prompt for prompt in self.prompts if prompt.pk == cell.prompt.key)
        tokens = self._sizes.get((model.pk, prompt.pk))
        if tokens is None:
            tokens = token_bounds.bound_input_tokens(model, prompt, self.experiment.dataset, self.dimensions)
            self._sizes[model.pk, prompt.pk] = tokens
        return tokens

    @property
    def shows_images(self) -> bool:
        return any(prompts.uses_variable(prompt.messages, prompts.IMAGE) for prompt in self.prompts)

    def get_ceiling(self, cell: Cell) -> Decimal | None:
        """Return the largest cost of one call of this cell in US dollars; None if a price or a limit is unknown."""
        model, sampler = self._get_model(cell), self._get_sampler(cell)
        limit = sampler.compute_output_ceiling(model.max_output_tokens)
        return self.get_prices(cell).compute_ceiling(self.get_input_tokens(cell), limit)

    def get_call_bounds(self, cell: Cell) -> costs.CallBounds:
        limit = self._get_sampler(cell).compute_output_ceiling()
        return costs.CallBounds(self.get_ceiling(cell), self.get_input_tokens(cell), limit)

    def get_prices(self, cell: Cell) -> costs.Prices:
        """Return the prices of a call of this cell, with the batch discount if it is batched."""
        return self._get_model(cell).prices.in_batch(self.get_discount(cell))

    def get_discount(self, cell: Cell) -> Decimal:
        """Return the share of the price that a call of this cell saves in a batch."""
        return self._get_model(cell).batch_discount if self.is_batched(cell) else Decimal(0)

    def is_batched(self, cell: Cell) -> bool:
        """Return whether this cell's calls are sent in batches.

        The experiment must request batches, and the endpoint must accept them.
        """
        return self.experiment.batch and not self.is_dev and self._get_model(cell).endpoint.accepts_batches

    def _get_model(self, cell: Cell) -> LanguageModel:
        return next(model for model in self.models if model.pk == cell.model.key)

    def _get_sampler(self, cell: Cell) -> Sampler:
        return next(sampler for sampler in self.samplers if sampler.pk == cell.sampler.key)

    @property
    def unknown_prices(self) -> list[str]:
        return [model.name for model in self.models if not model.prices.is_known]

    def find_problems(self) -> list[str]:
        """Return the problems that block planning, as sentences that name the setting to correct."""
        rounds = points.find_problems(self.adaptive, self.points, self.dimensions) if self.adaptive else []
        return [
            *self._find_unready_rows(),
            *self._find_empty_axes(),
            *self._find_unusable_rows(),
            *self._find_mismatches(),
            *self._find_missing_ceilings(),
            *rounds,
        ]

    def find_warnings(self) -> list[str]:
        """Return warnings about valid settings that look like a mistake."""
        about_prompts = [
            f"prompt {prompt}: {warning}" for prompt in self.prompts for warning in self._find_prompt_warnings(prompt)
        ]
        about_batches = self._find_batch_warnings() if self.experiment.batch and not self.is_dev else ()
        return [
            *self._find_unpayable_calls(),
            *about_prompts,
            *about_batches,
            *self._find_space_warnings(),
            *self._find_unknown_measure(),
        ]

    def _find_unknown_measure(self) -> Iterator[str]:
        """Yield a warning if nothing in the design has the name of the primary measure. Judges can be added later."""
        name = self.experiment.primary_measure
        own = [row.name for row in self.dimensions] + list(map(get_scorer_name, self.experiment.scorers))
        known = [*dict.fromkeys(own), *self.experiment.graders]
        labels = [text for row in self.dimensions for text in (str(row), row.title)]
        if name and name not in labels and not name.startswith((*known, "people-")):
            yield (
                f"primary_measure: {name} is no dimension, rule or judge of this design ({', '.join(known) or 'none'});"
                " until it has scores, pages show the first measure of the design first"
            )

    def _find_unpayable_calls(self) -> Iterator[str]:
        """Yield the cells of which the remaining budget does not cover a single call."""
        experiment = self.experiment
        if experiment.max_usd is None:
            return
        left = experiment.max_usd - experiment.spent_usd - experiment.reserved_usd
        ceilings = {cell.model.name: ceiling for cell in self.cells if (ceiling := self.get_ceiling(cell)) is not None}
        for name, ceiling in ceilings.items():
            if ceiling > left:
                yield (
                    f"the budget has {format_money(left)} left, and one call of {name} may cost"
                    f" {format_money(ceiling)}: no call of it starts. Raise the budget, or lower max_tokens"
                )

    def _find_space_warnings(self) -> Iterator[str]:
        if self.adaptive is None and (self.experiment.dataset.recipe or {}).get("stopping_rules"):
            yield (
                f"the space of {self.experiment.dataset} has stopping rules, and this design runs every case; "
                "choose Use the dataset's stopping rules, or write adaptive: dataset"
            )

    def _find_batch_warnings(self) -> Iterator[str]:
        for model in self.models:
            if not model.endpoint.accepts_batches:
                yield f"model {model} gets single calls: its endpoint {model.endpoint} does not accept batches"
        if self.adaptive and any(model.endpoint.accepts_batches for model in self.models):
            rules = [self.adaptive, *(self.adaptive.for_task(name) for name in self.adaptive.tasks)]
            rounds = max(-(-rule.max // rule.round) for rule in rules)
            yield f"batch and adaptive: each round is a batch of up to a day, and a point has up to {rounds:,} of them"

    def _find_prompt_warnings(self, prompt: Prompt) -> Iterator[str]:
        has_text, has_images = self._has_text_and_images
        yield from prompts.find_warnings(prompt.messages, items_have_text=has_text, items_have_images=has_images)
        for name, n_missing in self._find_missing_variables(prompt):
            if n_missing < self.n_items:
                yield f"{{{{{name}}}}} has no value for {n_missing} of {self.n_items} items; those trials fail"

    @cached_property
    def _has_text_and_images(self) -> tuple[bool, bool]:
        return self.items.exclude(input="").exists(), self.items.exclude(image=None).exists()

    def _find_missing_variables(self, prompt: Prompt) -> Iterator[tuple[str, int]]:
        return token_bounds.find_missing_variables(prompt, self.items)

    def _find_unready_rows(self) -> Iterator[str]:
        dataset = self.experiment.dataset
        if self.experiment.is_archived:
            yield f"experiment {self.experiment} is archived"
        if dataset.status != Dataset.Status.APPROVED:
            yield f"dataset {dataset} is {dataset.status}; it must be approved"
        elif not self.n_items:
            yield f"dataset {dataset} has no active items"

    def _find_empty_axes(self) -> Iterator[str]:
        for axis, rows in (("model", self.models), ("prompt", self.prompts), ("sampler", self.samplers)):
            if not rows:
                yield f"the experiment has no {axis}"

    def _find_unusable_rows(self) -> Iterator[str]:
        for model in self.models:
            if not model.is_active:
                yield f"model {model} is not active"
            if not model.endpoint.is_active:
                yield f"endpoint {model.endpoint} of model {model} is not active"
        for prompt in self.prompts:
            if prompt.status != Prompt.Status.APPROVED and prompt not in self.launched_rows:
                yield f"prompt {prompt} is {prompt.status}; a curator must approve it before it is used"
        for row in (*self.samplers, *self.dimensions):
            if row.status == row.Status.ARCHIVED and row not in self.launched_rows:
                yield f"{row._meta.verbose_name} {row} is archived"

    def _find_mismatches(self) -> Iterator[str]:
        for prompt in self.prompts:
            if prompt.answer_format != Prompt.AnswerFormat.TEXT and not self.dimensions:
                yield f"prompt {prompt} asks for a rating, and the experiment has no dimension"
            blind = [model.name for model in self.models if not model.sees_images]
            if blind and prompts.uses_variable(prompt.messages, prompts.IMAGE):
                yield f"prompt {prompt} shows an image, and model {blind[0]} does not see images"
            for name, n_missing in self._find_missing_variables(prompt):
                if self.n_items and n_missing == self.n_items:
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

    def _find_missing_ceilings(self) -> Iterator[str]:
        """Yield the models and samplers without a cost ceiling. With a budget, every call needs one."""
        if self.experiment.max_usd is None:
            return
        for name in self.unknown_prices:
            yield f"unknown price: model {name} has no price, and the experiment has a budget"
        for model in self.models:
            if model.prices.is_free or not model.prices.is_known or model.max_output_tokens:
                continue
            for sampler in self.samplers:
                if not sampler.limits_output:
                    yield (
                        f"no ceiling: sampler {sampler} sets no max_tokens, model {model} has no max_output_tokens, "
                        "and the experiment has a budget"
                    )
