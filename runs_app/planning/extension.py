"""Extensions of a launched design: the rows to add, their cost, and the problems that block them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User

from evalsite.lib.history import Actor, record_changes
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.experiment_files.specs import ExperimentSpec, ExtensionSpec
from runs_app.experiment_options import OPTIONS
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.cost_estimate import estimate_design
from runs_app.planning.design import Design
from runs_app.planning.spec_io import ExperimentBuilder
from runs_app.pricing.costs import CostEstimate

VERSIONED_AXES = ("prompts", "samplers", "dimensions")
DEFAULT_REASON = "The design was extended"


@dataclass(frozen=True, slots=True)
class Extension:
    """The rows to add to each axis of a design, and the new number of samples (None: unchanged)."""

    language_models: Sequence[LanguageModel] = ()
    prompts: Sequence[Prompt] = ()
    samplers: Sequence[Sampler] = ()
    dimensions: Sequence[Dimension] = ()
    samples: int | None = None

    @property
    def axes(self) -> dict[str, Sequence[Any]]:
        """Return the rows by the experiment's field."""
        return {
            "language_models": self.language_models,
            "prompts": self.prompts,
            "samplers": self.samplers,
            "dimensions": self.dimensions,
        }

    @property
    def is_empty(self) -> bool:
        return self.samples is None and not any(self.axes.values())

    def __str__(self) -> str:
        """Return the additions as text: `model sim-large, prompt plain@2, 5 samples`."""
        rows = [f"{row._meta.verbose_name} {row}" for rows in self.axes.values() for row in rows]
        return ", ".join([*rows, *([f"{self.samples} samples"] if self.samples is not None else [])])


@dataclass(frozen=True, slots=True)
class ExtensionPreview:
    """The effect of an extension on one wave, in trials and US dollars (None: unknown).

    `before` and `after` estimate all trials still to do, without and with the extension.
    """

    experiment: Experiment
    extension: Extension
    before: CostEstimate
    after: CostEstimate
    new_conditions: int
    unlaunched: int
    problems: list[str]

    @property
    def new_trials(self) -> int:
        return self.after.to_do - self.before.to_do

    @property
    def ceiling_usd(self) -> Decimal | None:
        """Return the largest cost of the new trials, including the verdicts of the design's judges."""
        return _subtract(self.after.ceiling_usd, self.before.ceiling_usd)

    @property
    def expected_usd(self) -> Decimal | None:
        return _subtract(self.after.expected_usd, self.before.expected_usd)

    @property
    def warnings(self) -> list[str]:
        return self.after.warnings

    @property
    def is_over_budget(self) -> bool:
        return self.experiment.may_exceed_budget(self.after.ceiling_usd)

    @property
    def needs_confirmation(self) -> bool:
        return self.experiment.needs_confirmation(self.after.ceiling_usd)

    @property
    def digest(self) -> str:
        """Return a digest of the size and cost shown before a confirmation, to detect a change."""
        return f"{self.new_trials}/{self.after.to_do}/{self.after.ceiling_usd}"


def _subtract(after: Decimal | None, before: Decimal | None) -> Decimal | None:
    return None if after is None or before is None else max(Decimal(0), after - before)


def read_extension(spec: ExtensionSpec, experiment: Experiment, *, by: User, trusted: bool = False) -> Extension:
    """Return the rows that `spec` names or defines inline and that the design does not have yet.

    Inline rows are created, so call this within a transaction. Raise SpecError, which names each wrong key.
    """
    axes = {"models": spec.models, "prompts": spec.prompts, "samplers": spec.samplers, "dimensions": spec.dimensions}
    content: Any = {"experiment": experiment.slug, "dataset": str(experiment.dataset), **axes}
    builder = ExperimentBuilder(ExperimentSpec.model_construct(**content), by, trusted)
    builder.used = frozenset(row for axis in VERSIONED_AXES for row in getattr(experiment, axis).all())
    rows = builder.build_facets()
    problems = list(builder.problems)
    if spec.dataset not in (None, experiment.dataset.slug, str(experiment.dataset)):
        problems.append(f"dataset: {experiment} uses {experiment.dataset}, and an extension cannot change it")
    if spec.samples is not None and spec.samples < experiment.samples:
        problems.append(f"samples: the experiment has {experiment.samples}; this number can only grow")
    if problems:
        raise SpecError(problems)
    samples = None if spec.samples == experiment.samples else spec.samples
    extension = Extension(**rows, samples=samples)
    existing = {axis: set(getattr(experiment, axis).values_list("pk", flat=True)) for axis in extension.axes}
    rows = {axis: [row for row in rows if row.pk not in existing[axis]] for axis, rows in extension.axes.items()}
    return Extension(**rows, samples=extension.samples)


def list_different_settings(spec: ExtensionSpec, experiment: Experiment) -> list[str]:
    """Return the keys of a complete experiment file that differ from the experiment. An extension ignores them."""
    current = {
        **{name: getattr(experiment, name) for name in ("title", "description", "adaptive")},
        **{option.key: getattr(experiment, option.name) for option in OPTIONS},
        "grade.scorers": experiment.scorers,
    }
    return [key for key, value in spec.settings.items() if value != "" and key in current and value != current[key]]


def _load_launched_design(experiment: Experiment, extension: Extension) -> tuple[Design, list[LanguageModel]]:
    """Return the launched design without its inactive models, and these models.

    The design keeps its prompts, samplers and dimensions even if they are archived now. If all its models are inactive
    and the extension adds none, the design keeps them, and its problems name them.
    """
    design = Design.load(experiment)
    design.launched_rows = frozenset([*design.prompts, *design.samplers, *design.dimensions])
    active = [model for model in design.models if model.is_active and model.endpoint.is_active]
    inactive = [model for model in design.models if model not in active]
    if not active and not extension.language_models:
        return design, []
    design.models = active
    return design, inactive


def build_extended_design(experiment: Experiment, extension: Extension) -> Design:
    """Return the design with the extension and without inactive models of the launched design. Nothing is saved."""
    extended_experiment = copy(experiment)
    extended_experiment.samples = extension.samples or experiment.samples
    launched, inactive = _load_launched_design(experiment, extension)
    extended = Design(
        extended_experiment,
        [*launched.models, *extension.language_models],
        [*launched.prompts, *extension.prompts],
        [*launched.samplers, *extension.samplers],
        [*launched.dimensions, *extension.dimensions],
        launched_rows=launched.launched_rows,
    )
    if inactive:
        extended.only = frozenset(cell.condition_id for cell in extended.cells)
    return extended


def preview_extension(experiment: Experiment, extension: Extension, *, wave_label: str = "") -> ExtensionPreview:
    """Return the effect of an extension on this wave, and the problems that block it."""
    design, inactive = _load_launched_design(experiment, extension)
    extended = build_extended_design(experiment, extension)
    before = estimate_design(design, wave_label=wave_label)
    after = estimate_design(extended, wave_label=wave_label)
    warnings = [f"model {model} is inactive: it gets no new trials" for model in inactive]
    runs = experiment.answer_runs.filter(wave__label=wave_label)
    waiting = sum(run.n_pending + run.n_running for run in runs.exclude(condition__model__in=inactive))
    return ExtensionPreview(
        experiment=experiment,
        extension=extension,
        before=before,
        after=replace(after, warnings=[*warnings, *after.warnings]),
        new_conditions=len(extended.cells) - len(design.cells),
        unlaunched=max(0, before.to_do - waiting),
        problems=[*find_extension_problems(experiment, extension, wave_label), *after.problems],
    )


def find_extension_problems(experiment: Experiment, extension: Extension, wave_label: str) -> Iterator[str]:
    """Yield the reasons why this wave cannot be extended, for the preview and for the extension itself."""
    if experiment.status == Experiment.Status.DRAFT:
        yield f"experiment {experiment} is a draft: edit it instead"
    if extension.dimensions and not experiment.dimensions.exists():
        yield "dimensions: this experiment was launched without dimensions, so it has no ratings; duplicate it instead"
    if experiment.is_archived:
        yield f"{experiment} is archived"
    if experiment.imported_from:
        yield experiment.describe_imported()
    if overlap := experiment.find_wave_overlap(wave_label, extension.samples or experiment.samples):
        yield overlap


def add_rows(experiment: Experiment, extension: Extension, *, by: Actor, reason: str = "") -> None:
    """Add the extension to the design, with a history entry per row. The caller holds the experiment's row lock."""
    reason = reason or DEFAULT_REASON
    for axis, rows in extension.axes.items():
        getattr(experiment, axis).add(*rows)
        for row in rows:
            record_changes([(experiment, "", str(row))], by=by, reason=reason, aspect=str(row._meta.verbose_name))
    if extension.samples is not None and extension.samples != experiment.samples:
        change = (experiment, str(experiment.samples), str(extension.samples))
        record_changes([change], by=by, reason=reason, aspect="samples")
        experiment.samples = extension.samples
        Experiment.objects.filter(pk=experiment.pk).update(samples=extension.samples)
