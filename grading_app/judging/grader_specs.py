"""Experiments and their judges from files, and judges to files and manifests. New inline definitions become rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from grading_app.judging import grader_lookup
from grading_app.judging.judge_draw import reuse_saved_grader
from grading_app.models import GradeCondition, Grader, Rubric
from runs_app.experiment_files.model_draw import DrawSpec
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.specs import ExperimentSpec, GraderSpec, RubricSpec
from runs_app.grading_interface import JudgeRecords
from runs_app.models import Experiment, LanguageModel, Sampler, TextSet
from runs_app.planning.drawn_models import build_judge_name
from runs_app.planning.manifests import describe_model_identity
from runs_app.planning.spec_io import ExperimentBuilder, build_model_spec, build_sampler_spec
from runs_app.planning.work import PlanError


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
        for grader in (
            [_find_or_report(builder, path, spec)] if isinstance(spec, str) else build_graders(builder, path, spec)
        ):
            if grader is not None and grader.name in names:
                builder.problems.append(f"{path}: {grader} is named twice")
            names += [grader.name] if grader else []
    return names


def _find_or_report(builder: RowBuilder, path: str, name: str) -> Grader | None:
    grader: Grader | None = Grader.objects.in_use().filter(name=name).first()
    if grader is None:
        builder.problems.append(f"{path}: there is no grader {name}")
    return grader


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
        return grader_lookup.find_grader(name)
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
    return {
        grader.grade_condition_id: grader for grader in [*grader_lookup.find_design_graders(experiment), *added_graders]
    }


def describe_judges(experiment: Experiment) -> JudgeRecords:
    """Return the judges as an experiment file and as a manifest record them, with current prices."""
    specs = [write_grader_spec(grader) for grader in grader_lookup.find_design_graders(experiment)]
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
        "model": build_model_spec(grader.language_model),
        "rubric": write_rubric_spec(grader.rubric),
        "sampler": build_sampler_spec(grader.sampler),
        **({"texts": str(grader.text_set)} if grader.text_set else {}),
        **options,
    }


def write_rubric_spec(rubric: Rubric) -> dict[str, Any]:
    content = {name: value for name, value in rubric.content.items() if name != "messages"}
    return {"name": rubric.name, **content, "messages": rubric.messages}
