"""Answers to judge, judges that are functions, and the engine's own drain."""

import json
from decimal import Decimal

import pytest

from grading_app.models import Grader, Rubric
from runs_app.models import Run, Sampler
from tests import factories
from tests.integration.engine.conftest import drain, reply

__all__ = ["drain", "reply"]

ONE = [
    {"role": "system", "content": "Grade {{scale}}. {{verdict_form}}"},
    {"role": "user", "content": "{{input}} {{target}}\n{{answer}}"},
]
TWO = [{"role": "user", "content": "{{input}}\n{{answer_a}}\n{{answer_b}}"}]


def make_rubric(name="standard", kind="score", **fields):
    messages = TWO if kind == "pairwise" else ONE
    usual = {"messages": messages, "scale_min": 0, "scale_max": 1, "status": "approved"}
    return Rubric.objects.create(name=name, kind=kind, **{**usual, **fields})


def make_grader(name="judge-a", *, rubric=None, model=None, sampler=None, **fields):
    model = model or factories.make_model("judge")
    sampler = sampler or Sampler.objects.filter(name="judging").first()
    sampler = sampler or factories.make_sampler("judging", temperature=0.0, max_tokens=200)
    return Grader.objects.create(
        name=name, language_model=model, sampler=sampler, rubric=rubric or make_rubric(), **fields
    )


@pytest.fixture
def answered(transactional_db):
    return make_answered()


def make_answered():
    """Three items, two models, two samples: twelve answers, done."""
    world = factories.make_world()
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment("pilot", owner=world.owner, samples=2, models=models)
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, dimension, index, run=run: f"{item.target} by {run.pk}, {index}")
    write_ledger(experiment)
    return experiment


def write_ledger(experiment):
    """The calls that gave the answers, so that counters and rows agree."""
    for run in experiment.runs.all():
        for trial in run.trials.all():
            factories.make_attempt(trial)
        Run.objects.filter(pk=run.pk).update(n_attempts=run.n_done)
    spent = sum(run.spent_usd for run in experiment.runs.all())
    type(experiment).objects.filter(pk=experiment.pk).update(spent_usd=spent)


@pytest.fixture
def wave(answered):
    return answered.waves.get()


def judging(score=1.0, **fields):
    """A judge that gives this score, or what a function of the request says."""

    async def call(request):
        value = score(request) if callable(score) else score
        text = value if isinstance(value, str) else f"I read it.\n```json\n{json.dumps(said(value))}\n```"
        return reply(text, **{"cost_usd": Decimal("0.00001"), **fields})

    return call


def said(value):
    return value if isinstance(value, dict) else {"score": value, "reasoning": "It is so."}


def judge_run(experiment):
    return Run.objects.get(experiment=experiment, condition__stage="judge")
