"""Experiments from and to files. Names refer to rows, and a new inline definition becomes a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import yaml
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models, transaction

from datasets_app.models import Dataset
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.experiment_files.specs import PROVIDER_DEFAULT, ExperimentSpec, PromptSpec
from runs_app.experiment_options import BUDGET, NAMES, OPTIONS, list_options
from runs_app.grading_interface import grading
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.parametric_spaces import NoSpaceRules, read_space_rules
from runs_app.scorers.scoring_rules import get_scorer_name, read_rule

SETTINGS = tuple(option.name for option in list_options())
COPIED_FIELDS = (*NAMES, "scorers", "graders", "adaptive", "draws")
AXES = ("language_models", "prompts", "samplers", "dimensions")


class ExperimentBuilder(RowBuilder):
    """A builder of an experiment from one file. It collects every problem before it raises SpecError."""

    def __init__(self, spec: ExperimentSpec, by: User, trusted: bool, *, is_import: bool = False) -> None:
        super().__init__(by, trusted, is_import=is_import)
        self.spec = spec
        self.draws = spec.drawn.content
        self.dataset: Dataset | None = None
        self.adaptive: dict[str, Any] = {}

    def make(self, axes: dict[str, list[Any]], graders: list[str]) -> Experiment:
        """Save the draft with these rows of its axes and these judges. Raise SpecError if a value is wrong."""
        dataset: Dataset | None = self.list_visible(Dataset).named(self.spec.dataset).first()
        if dataset is None:
            self.problems.append(f"dataset: there is no dataset {self.spec.dataset}")
        elif dataset.status != Dataset.Status.APPROVED:
            self.problems.append(f"dataset: {dataset} is {dataset.status}; it must be approved")
        elif self.spec.dataset_hash not in ("", dataset.content_hash):
            self.problems.append(f"dataset_hash: {dataset} has another content here, {dataset.content_hash[:12]}")
        self.dataset = dataset
        self.adaptive = self._build_adaptive()
        given = {option.name: self.spec.get_option(option) for option in OPTIONS}
        experiment = Experiment(
            slug=self.spec.experiment,
            title=self.spec.title,
            description=self.spec.description,
            owner=self.by,
            scorers=self._list_scorers(),
            adaptive=self.adaptive,
            **{name: value for name, value in given.items() if value is not None},
        )
        if self.dataset is not None:
            experiment.dataset = self.dataset
        self.check("", experiment, exclude=["dataset"])
        experiment.graders, experiment.draws = graders, self.draws
        if self.problems:
            raise SpecError(self.problems)
        experiment.save()
        for axis, rows in axes.items():
            getattr(experiment, axis).set(rows)
        return experiment

    def build_facets(self) -> dict[str, list[Any]]:
        """Return the rows of each axis, by the experiment's field. Create rows that are defined inline."""
        return {
            "language_models": self._list_models(),
            "prompts": self._build_axis("prompts", Prompt, self.spec.prompts, self.find_or_create_prompt),
            "samplers": self._build_axis("samplers", Sampler, self.spec.samplers, self.find_or_create_sampler),
            "dimensions": self._build_axis(
                "dimensions", Dimension, self.spec.dimensions, self.find_or_create_dimension
            ),
        }

    def _build_adaptive(self) -> dict[str, Any]:
        entries = self.spec.adaptive
        if not isinstance(entries, str):
            return entries.content if entries else {}
        try:
            return read_space_rules(self.dataset) if self.dataset else {}
        except NoSpaceRules as problem:
            self.problems.append(f"adaptive: {problem}")
            return {}

    def _list_scorers(self) -> list[str | dict[str, str]]:
        scorers = []
        for at, entry in enumerate(self.spec.grade.scorers):
            written = entry if isinstance(entry, str) else entry.content
            if (scorer := self._read_scorer(f"grade.scorers[{at}]", written)) and scorer not in scorers:
                scorers.append(scorer)
        if not self.adaptive or self.adaptive["scorer"] in map(get_scorer_name, scorers):
            return scorers
        scorer = self._read_scorer("adaptive.scorer", self.adaptive["scorer"])
        return [*scorers, scorer] if scorer else scorers

    def _read_scorer(self, path: str, written: str | dict[str, Any]) -> str | dict[str, str] | None:
        try:
            return read_rule(written).stored
        except ValueError as error:
            problem = str(error)
            self.problems.append(f"{path}: {problem[:1].lower()}{problem[1:]}")
            return None

    def _list_models(self) -> list[Any]:
        entries = self.spec.models
        if not isinstance(entries, DrawSpec):
            return self._build_axis("models", LanguageModel, entries, self.find_or_create_model)
        if (draw := self.make_draw("models", entries)) is None:
            return []
        self.draws["models"] = draw.content
        return self.find_drawn_models(draw)

    def _build_axis(
        self, axis: str, kind: type[models.Model], entries: Sequence[Any], inline: Callable[[str, Any], Any]
    ) -> list[Any]:
        """Return the rows of one axis, in the order of the file."""
        rows: list[Any] = []
        for at, entry in enumerate(entries):
            path = f"{axis}[{at}]"
            row = self.find_by_name(path, kind, entry) if isinstance(entry, str) else inline(path, entry)
            if row in rows:
                self.problems.append(f"{path}: {row} is named twice")
            rows += [row] if row is not None else []
        return rows


def duplicate(experiment: Experiment, new_slug: str, *, by: User) -> Experiment:
    """Create a draft of the same design with a new name, owned by `by`, without runs."""
    fields = {name: getattr(experiment, name) for name in COPIED_FIELDS}
    copy = Experiment(
        slug=new_slug,
        title=experiment.title,
        description=experiment.description,
        owner=by,
        dataset=experiment.dataset,
        **fields,
    )
    with transaction.atomic():
        try:
            copy.full_clean()
        except ValidationError as error:
            raise SpecError(error.messages) from None
        copy.save()
        for axis in AXES:
            getattr(copy, axis).set(getattr(experiment, axis).all())
    return copy


def build_spec(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as file content with all texts written out, so that another site can read it."""
    # The budget in the form of a file, without default values.
    budget = {}
    for option in list_options(group=BUDGET):
        value = getattr(experiment, option.name)
        if value != option.default:
            budget[option.key.removeprefix("budget.")] = (
                (int(value) if value == int(value) else float(value)) if option.kind is Decimal else value
            )
    spec: dict[str, Any] = {
        "experiment": experiment.slug,
        **_drop_unset({"title": experiment.title, "description": experiment.description}),
        "dataset": str(experiment.dataset),
        "models": [row.build_spec() for row in experiment.language_models.select_related("endpoint")],
        "prompts": [build_prompt_spec(row) for row in experiment.prompts.all()],
        "samplers": [build_sampler_spec(row) for row in experiment.samplers.all()],
        "dimensions": [build_dimension_spec(row) for row in experiment.dimensions.order_by("pk")],
        **{name: getattr(experiment, name) for name in SETTINGS},
        "adaptive": dict(experiment.adaptive),
        "budget": budget,
        "grade": _drop_unset(
            {
                "scorers": list(experiment.scorers),
                "graders": grading().describe_judges(experiment).specs if experiment.graders else [],
            }
        ),
        "drawn": dict(experiment.draws),
    }
    return {key: value for key, value in spec.items() if value not in ([], {})}


def to_yaml(experiment: Experiment) -> str:
    return dump_yaml(build_spec(experiment))


def dump_yaml(content: Any) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes multi-line texts as blocks. It writes no aliases, because the reader refuses them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _drop_unset(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping without unset values, because a file without them means the same."""
    return {key: value for key, value in mapping.items() if value not in (None, "", {}, [])}


def build_prompt_spec(prompt: Prompt) -> dict[str, Any]:
    """Return the prompt as `system` and `user` if possible, because they are easier to read than a list of turns."""
    texts = {turn["role"]: turn["content"] for turn in prompt.messages}
    short = {"name": prompt.name, **texts, "answer_format": prompt.answer_format}
    if set(texts) <= {"system", "user"} and "user" in texts and PromptSpec(**short).turns == prompt.messages:
        return short
    return {"name": prompt.name, "messages": prompt.messages, "answer_format": prompt.answer_format}


def build_sampler_spec(sampler: Sampler) -> str | dict[str, Any]:
    if sampler.name == PROVIDER_DEFAULT and not sampler.content:
        return PROVIDER_DEFAULT
    names = ("name", "temperature", "top_p", "max_tokens", "seed", "reasoning_effort", "extra")
    return _drop_unset({name: getattr(sampler, name) for name in names})


def build_dimension_spec(dimension: Dimension) -> dict[str, Any]:
    return {
        "name": dimension.name,
        **_drop_unset({"title": dimension.title}),
        "instructions": dimension.instructions,
        "min": dimension.scale_min,
        "max": dimension.scale_max,
        **_drop_unset({"labels": {int(point): label for point, label in dimension.labels.items()}}),
    }
