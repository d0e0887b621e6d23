"""Rubrics, graders, answers to judge, and judges that are functions."""

import json
from decimal import Decimal

from grading_app.models import Grader, Rubric
from runs_app.llm.rubric_checks import STARTERS
from runs_app.models import ItemText, Run, Sampler, TextSet
from tests import factories
from tests.factories import make_experiment, make_runs, plan_trials
from tests.factories.engine import build_reply

SCORE_TURNS = [
    {"role": "system", "content": "Grade {{scale}}. {{verdict_form}}"},
    {"role": "user", "content": "{{input}} {{target}}\n{{answer}}"},
]


PAIR_TURNS = [{"role": "user", "content": "{{input}}\n{{answer_a}}\n{{answer_b}}"}]


def make_rubric(name="standard", kind="score", **fields):
    """Create an approved rubric with the shortest texts that judge an answer, on a scale from 0 to 1."""
    messages = PAIR_TURNS if kind == "pairwise" else SCORE_TURNS
    defaults = {"messages": messages, "scale_min": 0, "scale_max": 1, "status": "approved"}
    return Rubric.objects.create(name=name, kind=kind, **{**defaults, **fields})


def make_grader(name="judge-a", *, rubric=None, model=None, sampler=None, **fields):
    """Create a grader. By default graders share the model `judge`, the sampler `judging` and the rubric `standard`."""
    model = model or factories.make_model("judge")
    sampler = sampler or Sampler.objects.filter(name="judging").first()
    sampler = sampler or factories.make_sampler("judging", temperature=0.0, max_tokens=200)
    return Grader.objects.create(
        name=name,
        language_model=model,
        sampler=sampler,
        rubric=rubric or Rubric.objects.filter(name="standard").first() or make_rubric(),
        **fields,
    )


def make_twelve_answers():
    """Create twelve completed answers: three items, two models, two samples."""
    team = factories.make_team()
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment("pilot", owner=team.owner, samples=2, models=models)
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, dimension, index, run=run: f"{item.target} by {run.pk}, {index}")
    write_ledger(experiment)
    return experiment


def write_ledger(experiment):
    """Create the attempts of the answers, so that counters and rows agree."""
    for run in experiment.runs.all():
        for trial in run.trials.all():
            factories.make_attempt(trial)
        Run.objects.filter(pk=run.pk).update(n_attempts=run.n_done)
    spent = sum(run.spent_usd for run in experiment.runs.all())
    type(experiment).objects.filter(pk=experiment.pk).update(spent_usd=spent)


def build_judge(score=1.0, **fields):
    """Return a judge that gives this score, or the score that a function of the request returns."""

    async def call(request):
        value = score(request) if callable(score) else score
        text = value if isinstance(value, str) else f"I read it.\n```json\n{json.dumps(build_verdict(value))}\n```"
        return build_reply(text, **{"cost_usd": Decimal("0.00001"), **fields})

    return call


def build_verdict(value):
    return value if isinstance(value, dict) else {"score": value, "reasoning": "It is so."}


def get_judge_run(experiment):
    return Run.objects.get(experiment=experiment, condition__stage="judge")


def build_starter_messages(kind="score"):
    starter = STARTERS[kind]
    return [{"role": "system", "content": starter.system}, {"role": "user", "content": starter.user}]


def make_starter_rubric(name="standard", *, kind="score", status="approved", **fields):
    """Create a rubric with the starter texts of the admin, for tests of its forms and versions."""
    defaults = {"messages": build_starter_messages(kind), **STARTERS[kind].fields}
    return Rubric.objects.create(name=name, kind=kind, status=status, **{**defaults, **fields})


def make_same_answers(slug="pilot", *, answer="Forty-two.", **fields):
    """Create an experiment with answers to all trials. Return it and its trials in key order."""
    experiment = make_experiment(slug, **fields)
    trials = []
    for run in make_runs(experiment, status="done"):
        answer_trial = answer if callable(answer) else lambda item, dimension, index: answer
        trials += plan_trials(run, answer=answer_trial)
    return experiment, trials


def make_item_texts(dataset, name="own", *, version=1, status="approved", texts=None):
    """Create a text set with a text for each item of the dataset, or with `texts`: {key: text}."""
    text_set = TextSet.objects.create(name=name, version=version, dataset=dataset)
    items = {item.key: item for item in dataset.items.all()}
    by_key = texts if texts is not None else {key: f"Own rubric of {key}" for key in items}
    ItemText.objects.bulk_create(
        ItemText(text_set=text_set, item=items[key], text=text) for key, text in by_key.items()
    )
    text_set.save()
    if status != "draft":
        TextSet.objects.transition_one(text_set, sources=["draft"], target=status, by="test")
    return text_set
