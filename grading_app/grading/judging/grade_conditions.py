"""Grade conditions of judges, one per grader in an experiment, and the versions of rubrics that may judge its answers.

The judge's request and the answers that it skips identify the condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Q

from grading_app.models import GradeCondition, Grader, RatingQueue, Rubric
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Condition, Experiment, TextSet
from runs_app.planning.design import get_condition_hash

# The lookup from a rubric or a text set to the verdicts that were given by it.
VERDICTS: dict[Any, str] = {Rubric: "grade_conditions", TextSet: "graders__grade_conditions"}
JUDGE_KIND = GradeCondition.Kind.JUDGE


def select_usable(kind: Any, experiment: Experiment) -> Any:
    """Return the approved versions, and the imported ones that came with this study.

    Verdicts by an imported version cannot be given here before this function allows it. So verdicts of an imported
    study by it came with the study.
    """
    approved = Q(status=kind.Status.APPROVED)
    if not experiment.imported_from:
        return kind.objects.filter(approved)
    judged_by_it = kind.objects.filter(
        Q(**{f"{VERDICTS[kind]}__experiment": experiment})
        | Q(rating_queues__in=RatingQueue.objects.filter(experiment=experiment).exclude(status="draft"))
    )
    return kind.objects.filter(approved | Q(status=kind.Status.IMPORTED, pk__in=judged_by_it.values("pk")))


def is_usable(row: Rubric | TextSet, experiment: Experiment) -> bool:
    """Return whether this version may judge the experiment's answers. An approved one needs no query."""
    kind = type(row)
    return row.status == kind.Status.APPROVED or select_usable(kind, experiment).filter(pk=row.pk).exists()


def select_usable_graders(experiment: Experiment) -> Any:
    """Return the graders in use whose rubric may judge this experiment's answers."""
    return Grader.objects.in_use().filter(rubric__in=select_usable(Rubric, experiment).values("pk"))


def find_condition(experiment: Experiment, grader: Grader) -> GradeCondition | None:
    """Return the grade condition with the grader's identity, or None if the experiment has none yet.

    A grader with another name but the same content has the same condition.
    """
    suffix = f"--{get_condition_hash(grader.grade_condition_id)}"
    rows = experiment.grade_conditions.filter(kind=JUDGE_KIND, grade_condition_id__endswith=suffix)
    return rows.select_related("judge_condition").first()


def get_or_create_condition(experiment: Experiment, grader: Grader) -> GradeCondition:
    """Return the grader's condition, creating it if needed. The experiment's row must be locked."""
    existing = find_condition(experiment, grader)
    if existing is not None:
        return existing
    key = grader.grade_condition_id
    judge_condition = Condition.objects.create(
        experiment=experiment,
        stage=Condition.Stage.JUDGE,
        model=grader.language_model,
        sampler=grader.sampler,
        condition_id=key,
        content=grader.content,
    )
    return GradeCondition.objects.create(
        experiment=experiment,
        grade_condition_id=key,
        kind=JUDGE_KIND,
        grader=grader,
        rubric=grader.rubric,
        judge_condition=judge_condition,
    )


def find_problems(experiment: Experiment, grader: Grader) -> Iterator[str]:
    """Yield the problems that keep a grader from judging this experiment's answers."""
    model, rubric, texts = grader.language_model, grader.rubric, grader.text_set
    if experiment.is_archived:
        yield f"experiment {experiment} is archived"
    if grader.archived_at is not None:
        yield f"grader {grader} is archived"
    if not (model.is_active and model.endpoint.is_active):
        yield f"model {model}, or its endpoint {model.endpoint}, is not active"
    yield from (f"rubric {rubric}: {problem}" for problem in judge_prompt.find_problems(rubric.kind, rubric.messages))
    if prompts.uses_variable(rubric.messages, prompts.IMAGE) and not model.sees_images:
        yield f"rubric {rubric} shows an image, and model {model} does not see images"
    yield from find_rubric_problems(experiment, rubric, texts, user_kind="grader", name=grader.name)
    if experiment.max_usd is not None and not model.prices.is_free:  # Under a budget, every call needs a ceiling.
        if not model.prices.is_known:
            yield f"unknown price: model {model} has no price, and the experiment has a budget"
        elif grader.output_limit is None:
            yield (
                f"no ceiling: sampler {grader.sampler} sets no max_tokens, model {model} has no max_output_tokens, "
                "and the experiment has a budget"
            )


def find_rubric_problems(
    experiment: Experiment, rubric: Rubric, texts: TextSet | None, *, user_kind: str, name: str
) -> Iterator[str]:
    """Yield the problems that keep a rubric and its item texts from being used on this experiment's answers."""
    options = {"rubric": "--rubric", "texts": "--texts"} if user_kind == "grader" else {}
    if not is_usable(rubric, experiment):
        remedy = _describe_remedy(rubric, "a curator must approve it before it is used", options.get("rubric", ""))
        yield f"rubric {rubric} is {rubric.status}; {remedy}"
    if prompts.uses_variable(rubric.messages, judge_prompt.ITEM_RUBRIC) and texts is None:
        yield f"rubric {rubric} uses {{{{item_rubric}}}}, but {user_kind} {name} has no item rubrics"
    if texts is not None and not is_usable(texts, experiment):
        remedy = _describe_remedy(texts, "a curator must approve them before they are used", options.get("texts", ""))
        yield f"item rubrics {texts} are {texts.status}; {remedy}"
    if texts is not None and texts.dataset_id != experiment.dataset_id:
        yield f"item rubrics {texts} belong to {texts.dataset}, but the experiment uses {experiment.dataset}"


def _describe_remedy(row: Rubric | TextSet, for_draft: str, option: str) -> str:
    """Return what to do about a version that this experiment may not use. An archived version can never be approved."""
    if row.status in row.UNAPPROVED:
        return for_draft
    newer = type(row).objects.filter(name=row.name, version__gt=row.version).offered()
    if (newest := newer.order_by("-version").first()) is None:
        return "an archived version cannot be used again, so choose another one"
    approval = "" if newest.status == row.Status.APPROVED else ", once a curator has approved it"
    return f"choose the newer version {newest}{option and f' ({option} {newest})'}{approval}"


def find_warnings(experiment: Experiment, grader: Grader) -> Iterator[str]:
    """Yield warnings about combinations that are allowed but may mislead."""
    if relatives := grader.language_model.find_relatives(experiment.list_solvers()):
        names = ", ".join(str(model) for model in relatives)
        model = grader.language_model
        yield f"grader {grader}: {model} belongs to the same family as {names} and may prefer their answers"
