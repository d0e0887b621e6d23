"""Rubrics, graders and answers to judge."""

from grading_app.judging.rubric_checks import STARTERS
from grading_app.models import Grader, Rubric
from runs_app.models import ItemText, TextSet
from tests.factories import make_experiment, make_model, make_runs, make_sampler, plan_trials


def turns_of(kind="score"):
    starter = STARTERS[kind]
    return [{"role": "system", "content": starter.system}, {"role": "user", "content": starter.user}]


def make_rubric(name="standard", *, kind="score", status="approved", **fields):
    defaults = {"messages": turns_of(kind), **STARTERS[kind].fields}
    return Rubric.objects.create(name=name, kind=kind, status=status, **{**defaults, **fields})


def make_grader(name="judge", *, rubric=None, **fields):
    defaults = {"language_model": make_model("judge-model"), "sampler": None}
    made = {**defaults, **fields}
    made["sampler"] = made["sampler"] or make_sampler(f"{name}-cold", temperature=0, max_tokens=200)
    return Grader.objects.create(name=name, rubric=rubric or make_rubric(f"{name}-rubric"), **made)


def make_answers(slug="pilot", *, answer="Forty-two.", **fields):
    """An experiment whose every trial is answered; returns it and its trials in the order of their keys."""
    experiment = make_experiment(slug, **fields)
    trials = []
    for run in make_runs(experiment, status="done"):
        given = answer if callable(answer) else lambda item, dimension, index: answer
        trials += plan_trials(run, answer=given)
    return experiment, trials


def make_texts(dataset, name="own", *, version=1, status="approved", texts=None):
    """A text for each item of the dataset, or those of {key: text}."""
    made = TextSet.objects.create(name=name, version=version, dataset=dataset)
    items = {item.key: item for item in dataset.items.all()}
    said = texts if texts is not None else {key: f"Own rubric of {key}" for key in items}
    ItemText.objects.bulk_create(ItemText(text_set=made, item=items[key], text=text) for key, text in said.items())
    made.save()
    if status != "draft":
        TextSet.objects.transition_one(made, sources=["draft"], target=status, by="test")
    return made
