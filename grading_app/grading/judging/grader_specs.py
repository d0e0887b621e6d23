"""Experiments, judges and panels: definitions in files to rows, and rows to files and manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db import transaction
from pydantic import Field

from grading_app.grading.judging import panels
from grading_app.grading.judging.graders import find_grader, reuse_saved_grader
from grading_app.models import GradeCondition, Grader, Panel, Rubric
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.spec_types import Name, Strict
from runs_app.experiment_files.specs import ExperimentSpec, GraderSpec, RubricSpec
from runs_app.grading_interface import JudgeRecords
from runs_app.models import Experiment, LanguageModel, Sampler, TextSet
from runs_app.planning.drawn_models import build_judge_name
from runs_app.planning.manifests import describe_model_identity
from runs_app.planning.spec_io import ExperimentBuilder, build_sampler_spec
from runs_app.planning.work import PlanError

PARTS = ("rubric", "language_model__endpoint", "sampler", "text_set")


def create_experiment(spec: ExperimentSpec, *, by: User, trusted: bool = False, is_import: bool = False) -> Experiment:
    """Create a draft owned by `by`, with all inline rows. Raise SpecError, and create nothing, if a value is wrong.

    Inline rows are created only if `by` may add them. A new prompt is approved at once if `by` may approve prompts;
    otherwise it waits for a curator. `trusted` skips the permission checks, for users of the command line. `is_import`:
    the design is of another tool, so that nobody approves its definitions by importing it.
    """
    with transaction.atomic():
        builder = ExperimentBuilder(spec, by, trusted, is_import=is_import)
        axes = builder.build_facets()
        return builder.make(axes, read_grader_names(builder, spec.grade.graders))


def read_grader_names(builder: RowBuilder, entries: Sequence[str | GraderSpec]) -> list[str]:
    """Return the names of the graders in a file. Add each problem to the builder's problems."""
    names: list[str] = []
    for index, spec in enumerate(entries):
        path = f"grade.graders[{index}]"
        graders: Iterable[Grader | None]
        if isinstance(spec, str):
            graders = list(Grader.objects.in_use().filter(name=spec)[:1])
            builder.problems += [] if graders else [f"{path}: there is no grader {spec}"]
        else:
            graders = build_graders(builder, path, spec)
        for grader in graders:
            if grader is not None and grader.name in names:
                builder.problems.append(f"{path}: {grader} is named twice")
            names += [grader.name] if grader else []
    return names


def build_graders(builder: RowBuilder, path: str, spec: GraderSpec) -> list[Grader | None]:
    """Return the grader of this definition, or one grader per model if its models are drawn."""
    parts = {
        "rubric": _build_part(
            builder,
            f"{path}.rubric",
            Rubric,
            spec.rubric,
            lambda part_path, entry: builder.find_or_approve(part_path, build_rubric_row(entry)),
        ),
        "sampler": _build_part(builder, f"{path}.sampler", Sampler, spec.sampler, builder.find_or_create_sampler),
        "text_set": builder.find_by_name(f"{path}.texts", TextSet, spec.texts) if spec.texts else None,
    }
    if not isinstance(spec.model, DrawSpec):
        model = _build_part(builder, f"{path}.model", LanguageModel, spec.model, builder.find_or_create_model)
        return [_find_or_build_grader(builder, path, spec, spec.name, parts | {"language_model": model})]
    if (draw := builder.make_draw(f"{path}.model", spec.model)) is None:
        return []
    builder.draws.setdefault("judges", {})[spec.name] = draw.content
    return [
        _find_or_build_grader(
            builder, path, spec, build_judge_name(spec.name, model.name), parts | {"language_model": model}
        )
        for model in builder.find_drawn_models(draw)
    ]


def _find_or_build_grader(
    builder: RowBuilder, path: str, spec: GraderSpec, name: str, parts: dict[str, Any]
) -> Grader | None:
    """Return the grader with this name if its content is equal, or a new one."""
    if any(part is None for field, part in parts.items() if field != "text_set"):
        return None
    grader = Grader(
        name=name,
        on_empty=spec.on_empty,
        longest_answer=spec.longest_answer,
        created_by=builder.by,
        **parts,
    )
    try:
        existing = reuse_saved_grader(grader)
    except PlanError as error:
        builder.problems += [f"{path}: {problem}" for problem in error.problems]
        return find_grader(name)
    if existing.pk is not None:
        return existing
    return grader if builder.save(path, grader) else None


def _build_part(builder: RowBuilder, path: str, kind: Any, entry: Any, inline: Any) -> Any:
    return builder.find_by_name(path, kind, entry) if isinstance(entry, str) else inline(path, entry)


def build_rubric_row(spec: RubricSpec) -> Rubric:
    return Rubric(
        name=spec.name,
        kind=spec.kind,
        messages=spec.turns,
        scale_min=spec.min,
        scale_max=spec.max,
        criteria=[part.model_dump() for part in spec.criteria],
        labels=[part.model_dump() for part in spec.labels],
    )


def list_judges(experiment: Experiment) -> dict[str, Grader]:
    """Return the judges of the design and the judges added later by the id of their condition, without duplicates."""
    added_conditions = experiment.grade_conditions.filter(kind=GradeCondition.Kind.JUDGE, grader__isnull=False)
    graders = Grader.objects.filter(pk__in=added_conditions.values("grader")).order_by("pk")
    added_graders = graders.with_parts()
    return {grader.grade_condition_id: grader for grader in [*Grader.objects.of_design(experiment), *added_graders]}


def describe_judges(experiment: Experiment) -> JudgeRecords:
    """Return the judges as an experiment file and as a manifest record them, with current prices."""
    specs = [write_grader_spec(grader) for grader in Grader.objects.of_design(experiment)]
    return JudgeRecords(specs, [_describe_grader(key, grader) for key, grader in list_judges(experiment).items()])


def _describe_grader(key: str, grader: Grader) -> dict[str, Any]:
    texts = grader.text_set
    return {
        "id": key,
        "grader": grader.name,
        "rubric": {"name": str(grader.rubric), "hash": grader.rubric.content_hash},
        "texts": {"name": str(texts), "hash": texts.content_hash} if texts else None,
        "sampler": {"name": str(grader.sampler), "hash": grader.sampler.content_hash},
        **describe_model_identity(grader.language_model, grader.language_model.identity),
    }


def write_grader_spec(grader: Grader) -> dict[str, Any]:
    defaults = {"on_empty": Grader.OnEmpty.SKIP, "longest_answer": None}
    options = {name: getattr(grader, name) for name in defaults if getattr(grader, name) != defaults[name]}
    return {
        "name": grader.name,
        "model": grader.language_model.build_spec(),
        "rubric": grader.rubric.build_spec(),
        "sampler": build_sampler_spec(grader.sampler),
        **({"texts": str(grader.text_set)} if grader.text_set else {}),
        **options,
    }


class PanelSpec(Strict):
    """Several graders and the rule that combines their scores of one answer."""

    name: Name
    graders: list[Name]
    rule: Literal["mean", "median", "majority"] = "mean"
    quorum: int | None = Field(default=None, ge=1)


def build_panel(builder: RowBuilder, spec: PanelSpec) -> tuple[Panel | None, bool]:
    """Return the panel of this definition, and whether it is new. Add each problem to the builder's problems."""
    rows = Grader.objects.in_use().filter(name__in=spec.graders)
    graders_by_name = {row.name: row for row in rows.select_related(*PARTS)}
    for index, name in enumerate(spec.graders):
        if name not in graders_by_name:
            builder.problems.append(
                f"panel.graders[{index}]: there is no grader {name} in use; `grader list` lists them"
            )
        elif name in spec.graders[:index]:
            builder.problems.append(f"panel.graders[{index}]: {name} is named twice")
    if not builder.problems:
        graders = [graders_by_name[name] for name in spec.graders]
        builder.problems += [f"panel.graders: {problem}" for problem in panels.find_member_problems(graders)]
        if spec.quorum and spec.quorum > len(graders):
            builder.problems.append(f"panel.quorum: the panel has {len(graders)} graders; enter at most this number")
    graders = list(graders_by_name.values())
    existing: Panel | None = Panel.objects.filter(name=spec.name).prefetch_related("graders").first()
    if existing is not None and existing.build_spec() != {
        **spec.model_dump(exclude_none=True),
        "graders": sorted(spec.graders),
    }:
        builder.problems.append(f"panel.name: another panel {spec.name} exists; choose a different name")
    if builder.problems or existing is not None:
        return existing, False
    panel = Panel(name=spec.name, rule=spec.rule, quorum=spec.quorum, created_by=builder.by)
    if not builder.save("panel", panel):
        return None, False
    panel.graders.set(graders)
    return panel, True
