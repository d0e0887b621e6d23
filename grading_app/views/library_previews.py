"""Previews and tries of the text in the library's editor, saved or not: messages, one call, and how it is read."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Aggregate, Case, Count, OuterRef, Subquery, Sum, When
from django.db.models.functions import Coalesce

from evalsite.lib.rating_scale import RatingScale
from grading_app.grading.judging.verdicts import read_verdict
from grading_app.models import GradeCondition, Grading, Preference, Rubric
from runs_app import first_study
from runs_app.llm import judge_prompt, prompts, rubric_checks
from runs_app.llm.prompts import PromptError
from runs_app.llm.rating_parser import parse_rating
from runs_app.models import Dimension, Experiment, Preflight, Prompt, Run, Sampler
from runs_app.prompt_preview import Turns, build_turns, preview_verdict, preview_writer, render_verdict
from runs_app.scorers.scorers import SCORERS, ScoredAnswer, ScoredItem
from runs_app.taskqueue.enqueue import enqueue_try

MAX_USES = 50
FOR_RATINGS = ("dimension", "dimension_instructions", "scale_min", "scale_max", "scale_labels")


def describe_version(row: Any, *, whole: bool = False) -> list[tuple[str, str]]:
    """Return the parts of a version as (name, text). `whole` includes the turns of a prompt or a rubric."""
    if isinstance(row, Sampler):
        return [(name.replace("_", " "), str(value)) for name, value in row.content.items()]
    if isinstance(row, Dimension):
        labels = sorted(row.labels.items(), key=lambda pair: int(pair[0]))
        parts = [("title", row.title), ("instructions", row.instructions)]
        parts += [("scale", f"{row.scale_min} to {row.scale_max}")]
        parts += [("labels", "\n".join(f"{point} = {label}" for point, label in labels))]
        return [(name, text) for name, text in parts if text]
    turns = [(f"turn {number}, {turn['role']}", turn["content"]) for number, turn in enumerate(row.messages, 1)]
    if isinstance(row, Prompt):
        return [("answer", row.get_answer_format_display()), *(turns if whole else [])]
    parts = [("kind", row.get_kind_display())]
    if row.kind != Rubric.Kind.WRITER:
        variables = judge_prompt.build_rubric_variables(row.content)
        parts += [(name, variables[name]) for name in ("scale", "criteria", "labels") if variables[name]]
    return [*parts, *(turns if whole else [])]


def list_gradings(rubric: Rubric, user: Any) -> list[GradeCondition]:
    """Return the grade conditions that use this rubric, newest first, each with `n_verdicts`.

    Only experiments that the user may see are included. A judge's verdicts are counted by its runs. A person's verdicts
    are few, and have no run.
    """

    def aggregate(rows: Any, by: str, total: Aggregate) -> Any:
        return Coalesce(Subquery(rows.order_by().values(by).annotate(n=total).values("n")), 0)

    conditions = GradeCondition.objects.filter(rubric=rubric, experiment__in=Experiment.objects.visible_to(user))
    by_judge = aggregate(Run.objects.filter(condition=OuterRef("judge_condition")), "condition", Sum("n_done"))
    by_person = aggregate(Grading.objects.filter(condition=OuterRef("pk")), "condition", Count("pk"))
    by_person += aggregate(Preference.objects.filter(condition=OuterRef("pk")), "condition", Count("pk"))
    verdicts = Case(When(kind=GradeCondition.Kind.PERSON, then=by_person), default=by_judge)
    rows = conditions.select_related("experiment", "grader", "assignment__queue").annotate(n_verdicts=verdicts)
    return list(rows.order_by("-pk")[:MAX_USES])


def _list_problems(form: Any) -> list[str]:
    """Return the errors of the editor's text. The name may still be missing."""
    return [problem for name, found in form.errors.items() if name != "name" for problem in found]


def _read_messages(form: Any) -> Any:
    """Return the turns in the editor: entered, stored, or those of its starter text."""
    if form.is_bound or form.instance.messages:
        return form.instance.messages
    texts = [(role, str(form[role].value() or "").strip("\n")) for role in ("system", "user")]
    return [prompts.Turn(role=role, content=text) for role, text in texts if text.strip()]


# Prompts --------------------------------------------------------------------------------------------------------------


def _read_prompt(form: Any) -> Prompt:
    """Return the prompt in the editor, unsaved. Raise PromptError with its problems."""
    if form.is_bound and (problems := _list_problems(form)):
        raise PromptError(" ".join(problems))
    answer_format = form.instance.answer_format if form.is_bound else form["answer_format"].value()
    return Prompt(pk=0, name="unsaved", messages=_read_messages(form), answer_format=answer_format)


def build_prompt_preview(form: Any, choice: Any, dataset: Any) -> dict[str, Any]:
    """Return the messages of the prompt in the editor for the chosen item, its variables, and the cost of a try."""
    chosen = choice.cleaned_data if choice.is_bound and choice.is_valid() else {"dataset": dataset}
    item = choice.find_item(chosen.get("dataset"), chosen.get("item", ""))
    if item is None:
        missing = "The dataset has no item with this key." if chosen.get("dataset") else "Choose a dataset."
        return {"turns": Turns([], missing), "variables": []}
    dimension = chosen.get("dimension")
    variables = first_study.list_variables(item)
    variables += [prompts.format_placeholder(name) for name in FOR_RATINGS] if dimension else []
    result: dict[str, Any] = {"item": item, "variables": variables}
    try:
        prompt = _read_prompt(form)
        items = item.dataset.items.active()
        result["warnings"] = prompts.find_warnings(
            prompt.messages,
            items_have_text=items.exclude(input="").exists(),
            items_have_images=items.exclude(image=None).exists(),
        )
        address = item.image.url if item.image else None
        sent = first_study.render_for_item(prompt, item, dimension, image_address=address)
    except PromptError as problem:
        return result | {"turns": Turns([], str(problem))}
    if model := chosen.get("model"):
        result["model"] = model
        result["ceiling_usd"] = first_study.bound_try(model, sent, chosen.get("sampler"))
    return result | {"turns": Turns(build_turns(sent, item))}


# Rubrics --------------------------------------------------------------------------------------------------------------


def _read_rubric(form: Any) -> Rubric:
    if form.is_bound and (problems := _list_problems(form)):
        raise PromptError(" ".join(problems))
    rubric: Rubric = form.instance
    if not form.is_bound and not rubric.messages:
        values = {name: form[name].value() for name in ("kind", "scale_min", "scale_max", "criteria", "labels")}
        values = {name: value for name, value in values.items() if value not in (None, "")}
        return Rubric(messages=_read_messages(form), **values)
    return rubric


def build_rubric_preview(form: Any, choice: Any) -> dict[str, Any]:
    """Return the judge's messages for the chosen answer, warnings, and the cost of a try."""
    if not choice.is_bound or not choice.is_valid():
        return {"turns": Turns([], "Choose an experiment to see the exact messages of a judge.")}
    try:
        rubric = _read_rubric(form)
        answers = choice.fetch_answers(in_pairs=rubric.kind == Rubric.Kind.PAIRWISE)
    except ValueError as problem:
        return {"turns": Turns([], str(problem))}
    text = choice.fetch_item_text(answers[0])
    if rubric.kind == Rubric.Kind.WRITER:
        return {"answers": answers, "turns": preview_writer(rubric.messages, answers[0])}
    rival = answers[1] if len(answers) > 1 else None
    result: dict[str, Any] = {
        "answers": answers,
        "turns": preview_verdict(rubric.content, answers[0], rival, text),
        "warnings": rubric_checks.find_warnings(rubric.messages),
    }
    model = choice.cleaned_data.get("model")
    if model and not result["turns"].problem:
        sent = render_verdict(rubric.content, answers[0], rival, text)
        result |= {
            "model": model,
            "ceiling_usd": first_study.bound_try(model, sent, choice.cleaned_data.get("sampler")),
        }
    return result


# Tries ----------------------------------------------------------------------------------------------------------------


def request_try(form: Any, choice: Any, *, by: User) -> Preflight:
    """Enqueue one call with the text in the editor. Nothing is saved. Raise PromptError if that is impossible."""
    if not choice.is_valid() or not choice.cleaned_data.get("model"):
        raise PromptError("Choose a model to try.")
    chosen = choice.cleaned_data
    if isinstance(form.instance, Rubric):
        rubric = _read_rubric(form)
        if rubric.kind == Rubric.Kind.WRITER:
            raise PromptError("A rubric writer gives no verdict to try.")
        try:
            answers = choice.fetch_answers(in_pairs=rubric.kind == Rubric.Kind.PAIRWISE)
        except ValueError as problem:
            raise PromptError(str(problem)) from None
        item, rival = answers[0].item, answers[1] if len(answers) > 1 else None
        sent = render_verdict(rubric.content, answers[0], rival, choice.fetch_item_text(answers[0]))
    else:
        item = choice.find_item(chosen.get("dataset"), chosen.get("item", ""))
        if item is None:
            raise PromptError("Choose a dataset and the key of one of its items.")
        sent = first_study.render_for_item(_read_prompt(form), item, chosen.get("dimension"))
    parameters = first_study.limit_try(chosen.get("sampler"))
    about = f"{item.dataset}: {item.key}"[:320]
    return enqueue_try(chosen["model"], by=by, about=about, messages=sent, parameters=parameters)


def read_try(call: Preflight, form: Any, choice: Any) -> dict[str, Any]:
    """Return how the answer of a try is read: as a rating, a verdict, or by the scorer that fits the dataset."""
    if call.status != Preflight.Status.OK or not choice.is_valid():
        return {}
    chosen, is_cut = choice.cleaned_data, call.finish_reason == "length"
    if isinstance(form.instance, Rubric):
        try:
            rubric = _read_rubric(form)
            answers = choice.fetch_answers(in_pairs=rubric.kind == Rubric.Kind.PAIRWISE)
        except ValueError:
            return {}
        texts = [trial.answer for trial in answers]
        return {"verdict": read_verdict(call.answer, rubric.content, texts, is_truncated=is_cut)}
    dimension, dataset = chosen.get("dimension"), chosen.get("dataset")
    if dimension and form["answer_format"].value() != Prompt.AnswerFormat.TEXT:
        return {"rating": parse_rating(call.answer, RatingScale(*dimension.scale))}
    item = choice.find_item(dataset, chosen.get("item", ""))
    scorer = first_study.guess_question(dataset).scorer if dataset else ""
    if item is None or scorer not in SCORERS:
        return {}
    answer = ScoredAnswer(call.answer, truncated=is_cut, output_tokens=call.output_tokens)
    score = SCORERS[scorer].score(answer, ScoredItem(item.target, tuple(map(str, item.choices))), {})
    return {"scorer": SCORERS[scorer], "score": score, "item": item}
