"""Experiments from files and to files: names become rows, and what is written inline becomes a row if it is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import yaml
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models, transaction

from datasets_app.models import Dataset
from datasets_app.models.history import record_changes
from evalsite.lib.hashing import content_hash
from runs_app.above import grading, scorer_choices
from runs_app.designs.drawing import Draw, DrawError, DrawSpec
from runs_app.designs.drawn import draw_models
from runs_app.designs.specs import (
    PROVIDER_DEFAULT,
    BudgetSpec,
    DimensionSpec,
    ExperimentSpec,
    ModelSpec,
    PromptSpec,
    SamplerSpec,
    SpecError,
    read_spec,
    read_yaml,
)
from runs_app.designs.versioning import next_version
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Prompt, Sampler
from runs_app.models.designs import Versioned

__all__ = ["SpecError", "create_experiment", "duplicate", "read_spec", "read_yaml", "spec_of", "to_yaml"]

SETTINGS = (
    "samples",
    "cache",
    "cache_buster",
    "batch",
    "sequential",
    "max_concurrency",
    "priority",
    "request_timeout_s",
    "max_attempts",
    "backoff_s",
    "max_backoff_s",
    "on_empty",
    "on_unreadable",
    "lease_s",
    "stop_failure_rate",
    "stop_after_attempts",
)
COPIED = (
    "max_usd",
    "confirm_above_usd",
    "budget_policy",
    "dev_items",
    "dev_samples",
    "scorers",
    "graders",
    "adaptive",
    "draws",
)
AXES = ("language_models", "prompts", "samplers", "dimensions")
APPROVE = "runs_app.approve_prompt"
MADE_FOR = "Made for an experiment"  # Without its name: the history of a prompt is read by the whole group.
# Where the file's key has another name than the column.
KEYS = {
    "slug": "experiment",
    "max_usd": "budget.max_usd",
    "confirm_above_usd": "budget.confirm_above_usd",
    "dev_items": "budget.dev_items",
    "dev_samples": "budget.dev_samples",
    "scale_min": "min",
    "scale_max": "max",
    "__all__": "it",
}


def create_experiment(spec: ExperimentSpec, *, by: User, trusted: bool = False) -> Experiment:
    """A draft of the design, owned by `by`, with what it defines inline, or nothing at all (SpecError).

    What is inline is made only where `by` may add such rows. A prompt that is made is approved at once where `by` may
    approve, else it waits for a curator. `trusted` is for whoever has the command line: asked for no permission.
    """
    with transaction.atomic():
        return Maker(spec, by, trusted).make()


class Maker:
    """One file on its way into rows: collects every problem before it gives up."""

    def __init__(self, spec: ExperimentSpec, by: User, trusted: bool) -> None:
        self.spec, self.by, self.trusted = spec, by, trusted
        self.problems: list[str] = []
        self.draws: dict[str, Any] = spec.drawn.content

    def make(self) -> Experiment:
        axes = self.facets()
        graders = self._graders()
        experiment = self._experiment()
        experiment.graders, experiment.draws = graders, self.draws
        if self.problems:
            raise SpecError(self.problems)
        experiment.save()
        for axis, rows in axes.items():
            getattr(experiment, axis).set(rows)
        return experiment

    def facets(self) -> dict[str, list[Any]]:
        """Return the rows of each axis, by the experiment's field, and make those that are written inline."""
        return {
            "language_models": self._models(),
            "prompts": self._axis("prompts", Prompt, self.spec.prompts, self._prompt),
            "samplers": self._axis("samplers", Sampler, self.spec.samplers, self.sampler),
            "dimensions": self._axis("dimensions", Dimension, self.spec.dimensions, self._dimension),
        }

    def _experiment(self) -> Experiment:
        settings = {name: value for name in SETTINGS if (value := getattr(self.spec, name)) is not None}
        experiment = Experiment(
            slug=self.spec.experiment,
            title=self.spec.title,
            description=self.spec.description,
            owner=self.by,
            scorers=self._scorers(),
            adaptive=self.spec.adaptive.content if self.spec.adaptive else {},
            max_usd=self.spec.budget.max_usd,
            confirm_above_usd=self.spec.budget.confirm_above_usd,
            **_policy_of(self.spec.budget),
            **settings,
        )
        if (dataset := self._dataset()) is not None:
            experiment.dataset = dataset
        self._check("", experiment, exclude=["dataset"])
        return experiment

    def _dataset(self) -> Dataset | None:
        found: Dataset | None = self._visible(Dataset).named(self.spec.dataset).first()
        if found is None:
            self.problems.append(f"dataset: there is no dataset {self.spec.dataset}")
        elif found.status != Dataset.Status.APPROVED:
            self.problems.append(f"dataset: {found} is {found.status}; it must be approved")
        elif self.spec.dataset_hash not in ("", found.content_hash):
            self.problems.append(f"dataset_hash: {found} has another content here, {found.content_hash[:12]}")
        return found

    def _scorers(self) -> list[str]:
        known = [name for name, _ in scorer_choices()]
        for at, name in enumerate(self.spec.grade.scorers):
            if name not in known:
                self.problems.append(f"grade.scorers[{at}]: there is no scorer {name}; known are {', '.join(known)}")
        chosen = list(self.spec.grade.scorers)
        if (adaptive := self.spec.adaptive) is None or adaptive.scorer in chosen:
            return chosen
        if adaptive.scorer not in known:
            self.problems.append(f"adaptive.scorer: there is no scorer {adaptive.scorer}; known are {', '.join(known)}")
        return [*chosen, adaptive.scorer]

    def _graders(self) -> list[str]:
        """The names of the judges, which the app that grades finds or makes."""
        said = self.spec.grade.graders
        return grading().graders_named(self, said) if said else []

    def _models(self) -> list[Any]:
        said = self.spec.models
        if not isinstance(said, DrawSpec):
            return self._axis("models", LanguageModel, said, self.model)
        if (made := self.drawn("models", said)) is None:
            return []
        self.draws["models"] = made.content
        return self.models_of(made)

    def drawn(self, path: str, spec: DrawSpec) -> Draw | None:
        """A draw from the models that this author sees; None where it cannot be made."""
        try:
            return draw_models(spec, self._visible(LanguageModel))
        except DrawError as error:
            self.problems.append(f"{path}.{error.key}: {error}")
            return None

    def models_of(self, made: Draw) -> list[LanguageModel]:
        """The rows of a draw that was just made, in its order."""
        rows = {row.name: row for row in LanguageModel.objects.filter(name__in=made.drawn).select_related("endpoint")}
        return [rows[name] for name in made.drawn]

    def _axis(
        self, axis: str, kind: type[models.Model], said: Sequence[Any], inline: Callable[[str, Any], Any]
    ) -> list[Any]:
        """The rows of one axis, in the order of the file."""
        rows: list[Any] = []
        for at, one in enumerate(said):
            path = f"{axis}[{at}]"
            row = self.named(path, kind, one) if isinstance(one, str) else inline(path, one)
            if row in rows:
                self.problems.append(f"{path}: {row} is named twice")
            rows += [row] if row is not None else []
        return rows

    def _visible(self, kind: Any) -> Any:
        return kind.objects.all() if self.trusted else kind.objects.visible_to(self.by)

    def named(self, path: str, kind: Any, reference: str) -> Any:
        if kind is Sampler and reference == PROVIDER_DEFAULT:
            return self.sampler(path, SamplerSpec(name=PROVIDER_DEFAULT))
        rows = self._visible(kind)
        row = rows.filter(name=reference).first() if kind is LanguageModel else rows.named(reference).first()
        if row is None:
            self.problems.append(f"{path}: there is no {kind._meta.verbose_name} {reference}")
        return row

    # --- what is written inline -------------------------------------------------------------------------------------

    def model(self, path: str, spec: ModelSpec) -> LanguageModel | None:
        known: LanguageModel | None = LanguageModel.objects.select_related("endpoint").filter(name=spec.name).first()
        if known is None:
            return self._new_model(path, spec)
        if (known.endpoint.name, known.model) != (spec.endpoint, spec.model):
            self.problems.append(
                f"{path}: model {spec.name} is {known.model} at {known.endpoint} here; give this one another name"
            )
        return known

    def _new_model(self, path: str, spec: ModelSpec) -> LanguageModel | None:
        endpoint = Endpoint.objects.filter(name=spec.endpoint).first()
        if endpoint is None:
            self.problems.append(f"{path}.endpoint: there is no endpoint {spec.endpoint}; an operator makes it")
            return None
        row = LanguageModel(name=spec.name, endpoint=endpoint, model=spec.model)
        if not self.save(path, row):
            return None
        record_changes([(row, "", "made")], by=self.by, reason=MADE_FOR)
        return row

    def _prompt(self, path: str, spec: PromptSpec) -> Any:
        row = Prompt(name=spec.name, messages=spec.turns, answer_format=spec.answer_format)
        prompt, new = self.version(path, row)
        if new and self.may(APPROVE):
            Prompt.objects.transition_one(prompt, sources=["draft"], target="approved", by=self.by, reason=MADE_FOR)
        return prompt

    def sampler(self, path: str, spec: SamplerSpec) -> Any:
        return self.version(path, Sampler(**spec.model_dump()))[0]

    def _dimension(self, path: str, spec: DimensionSpec) -> Any:
        row = Dimension(
            name=spec.name,
            title=spec.title,
            instructions=spec.instructions,
            scale_min=spec.min,
            scale_max=spec.max,
            labels={str(point): label for point, label in spec.labels.items()},
        )
        return self.version(path, row)[0]

    def version(self, path: str, row: Versioned) -> tuple[Any, bool]:
        """The version of this name that says the same, else a new one; and whether it is new. None if it is refused."""
        kind: Any = type(row)
        same = kind.objects.filter(name=row.name, content_hash=content_hash(row.content)).exclude(status="archived")
        if (known := same.order_by("-version").first()) is not None:
            return known, False
        row.version = next_version(kind, row.name)
        row.created_by = self.by
        return (row, True) if self.save(path, row) else (None, False)

    def save(self, path: str, row: models.Model) -> bool:
        """Save a row that is new, where this author may and it is valid."""
        kind = row._meta
        if not self.may(f"{kind.app_label}.add_{kind.model_name}"):
            self.problems.append(f"{path}: you may not add a {kind.verbose_name}; name one that is there")
            return False
        if not self._check(path, row):
            return False
        row.save()
        return True

    def may(self, permission: str) -> bool:
        return self.trusted or self.by.has_perm(permission)

    def _check(self, path: str, row: models.Model, exclude: Sequence[str] = ()) -> bool:
        try:
            row.full_clean(exclude=exclude)
        except ValidationError as error:
            for field, sentences in error.message_dict.items():
                key = KEYS.get(field, field)
                where = f"{path}.{key}" if path else key
                self.problems += [f"{where}: {sentence}" for sentence in sentences]
            return False
        return True


def duplicate(experiment: Experiment, new_slug: str, *, by: User) -> Experiment:
    """A draft of the same design under another name, owned by `by`; nothing that was run comes along."""
    copied = {name: getattr(experiment, name) for name in (*SETTINGS, *COPIED)}
    copy = Experiment(
        slug=new_slug,
        title=experiment.title,
        description=experiment.description,
        owner=by,
        dataset=experiment.dataset,
        **copied,
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


def spec_of(experiment: Experiment) -> dict[str, Any]:
    """The experiment as a file says it, with all it asks written out, so that another site can read it, too."""
    spec: dict[str, Any] = {
        "experiment": experiment.slug,
        **_said({"title": experiment.title, "description": experiment.description}),
        "dataset": str(experiment.dataset),
        "models": [model_spec(row) for row in experiment.language_models.select_related("endpoint")],
        "prompts": [_prompt_spec(row) for row in experiment.prompts.all()],
        "samplers": [sampler_spec(row) for row in experiment.samplers.all()],
        "dimensions": [_dimension_spec(row) for row in experiment.dimensions.order_by("pk")],
        **{name: getattr(experiment, name) for name in SETTINGS},
        "adaptive": dict(experiment.adaptive),
        "budget": _budget_spec(experiment),
        "grade": _said({"scorers": list(experiment.scorers), "graders": _grader_specs(experiment)}),
        "drawn": dict(experiment.draws),
    }
    return {key: value for key, value in spec.items() if value not in ([], {})}


def to_yaml(experiment: Experiment) -> str:
    return yaml.dump(spec_of(experiment), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, since people read these files; no aliases, since they are refused again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _said(mapping: dict[str, Any]) -> dict[str, Any]:
    """Without what is not set: a file that does not mention it means the same."""
    return {key: value for key, value in mapping.items() if value not in (None, "", {}, [])}


def _policy_of(budget: BudgetSpec) -> dict[str, Any]:
    """Return the fields of the budget policy that a file sets."""
    given = {"budget_policy": budget.policy, "dev_items": budget.dev_items, "dev_samples": budget.dev_samples}
    return {name: value for name, value in given.items() if value is not None}


def _budget_spec(experiment: Experiment) -> dict[str, Any]:
    """Return the budget as a file says it. What is as usual is left out."""
    amounts = {name: _number(getattr(experiment, name)) for name in ("max_usd", "confirm_above_usd")}
    usual = Experiment()
    policy = {
        key: getattr(experiment, name)
        for key, name in (("policy", "budget_policy"), ("dev_items", "dev_items"), ("dev_samples", "dev_samples"))
        if getattr(experiment, name) != getattr(usual, name)
    }
    return _said(amounts) | policy


def _grader_specs(experiment: Experiment) -> list[dict[str, Any]]:
    return list(grading().grader_specs(experiment.graders)) if experiment.graders else []


def _number(amount: Any) -> int | float | None:
    if amount is None:
        return None
    return int(amount) if amount == int(amount) else float(amount)


def model_spec(model: LanguageModel) -> dict[str, Any]:
    return {"name": model.name, "endpoint": model.endpoint.name, "model": model.model}


def _prompt_spec(prompt: Prompt) -> dict[str, Any]:
    """As system and user where that says it all, which people find easier to read than a list of turns."""
    texts = {turn["role"]: turn["content"] for turn in prompt.messages}
    short = {"name": prompt.name, **texts, "answer_format": prompt.answer_format}
    if set(texts) <= {"system", "user"} and "user" in texts and PromptSpec(**short).turns == prompt.messages:
        return short
    return {"name": prompt.name, "messages": prompt.messages, "answer_format": prompt.answer_format}


def sampler_spec(sampler: Sampler) -> str | dict[str, Any]:
    if sampler.name == PROVIDER_DEFAULT and not sampler.content:
        return PROVIDER_DEFAULT
    names = ("name", "temperature", "top_p", "max_tokens", "seed", "reasoning_effort", "extra")
    return _said({name: getattr(sampler, name) for name in names})


def _dimension_spec(dimension: Dimension) -> dict[str, Any]:
    return {
        "name": dimension.name,
        **_said({"title": dimension.title}),
        "instructions": dimension.instructions,
        "min": dimension.scale_min,
        "max": dimension.scale_max,
        **_said({"labels": {int(point): label for point, label in dimension.labels.items()}}),
    }
