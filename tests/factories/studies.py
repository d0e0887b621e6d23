"""Finished rating studies."""

import re
from decimal import Decimal

from django.db.models import F

from grading_app.grading.judging import panels
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.grading.scoring import grade
from grading_app.models import Panel
from grading_app.models.gradings import allow_superseding
from grading_app.models.rubrics import Scale
from grading_app.results.raters.disagreements import adjudicate
from runs_app import run_control
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Answer, DeletedRun, Dimension, Preflight, Trial
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.judges import build_judge, make_grader, make_item_texts, make_rubric
from tests.factories.people import NOON
from tests.factories.queues import (
    CRITERIA,
    make_answer_queue,
    make_image,
    make_rater,
    make_strict_rubric,
    rate_all,
)


def make_rated_study(slug="study", *, dimensions=("valence",), images=False, **fields):
    """Create a study in which two models rate eight items with norms twice. The last rating of each is refused."""
    items = [{"key": f"picture-{n}", "category": "AB"[n % 2], "norms": {"valence": 2 + n % 3}} for n in range(8)]
    if images:
        items = [{**item, "image": make_image(n)} for n, item in enumerate(items)]
    experiment = factories.make_experiment(
        slug,
        dataset=factories.make_dataset(f"{slug}-pictures", items, source="Photographs of the lab", licence="CC0"),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[
            Dimension.objects.filter(name=name).first() or factories.make_dimension(name) for name in dimensions
        ],
        samples=2,
        **fields,
    )
    for run in factories.make_runs(experiment, status="done"):
        is_higher = run.condition.model.name == "b"
        factories.plan_trials(
            run, answer=lambda item, _, index, is_higher=is_higher: _build_rating_fields(item, is_higher, index)
        )
    return experiment


def _build_rating_fields(item, is_higher, index):
    if item.position == 7 and index:
        return factories.build_failed_fields("content_refused")
    number = 1 + item.position % 3 + is_higher + index
    return {"answer": str(number), "rating": number}


def make_graded_study(slug="graded", **fields):
    """Create two models and two prompts over 24 questions in three categories, graded by a rule and a judge."""
    items = [{"key": f"q-{n:02}", "input": f"{n} + {n}?", "target": str(2 * n), "category": f"group {n % 3}"}
             for n in range(24)]  # fmt: skip
    models = [factories.make_model(name, output_price=price) for name, price in (("sim-large", 10), ("sim-small", 0.5))]
    prompts = [factories.make_prompt(name, user=f"{name}: {{{{input}}}}") for name in ("plain", "step-by-step")]
    experiment = factories.make_experiment(
        slug, dataset=factories.make_dataset(f"{slug}-sums", items), models=models, prompts=prompts,
        scorers=["exact_match"], **fields,
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        limit, cost = (22, 23, 12, 14)[number], Decimal(("0.0100", "0.0300", "0.0005", "0.0016")[number])
        factories.plan_trials(
            run,
            answer=lambda item, *_, limit=limit: {"answer": item.target if item.position < limit else "no idea"},
            cost_usd=cost,
        )
    grade(experiment, by="a test")
    make_gradings(
        experiment, "strict", lambda trial: float(trial.answer != "no idea" and trial.item.position != 3),
        rubric=make_scale_rubric("strict-rubric", low=0, high=1),
    )  # fmt: skip
    return experiment


ADAPTIVE = {"by": "category", "scorer": "exact_match", "round": 8, "max": 24, "targetci": 0.15}


def make_whole_study(slug="whole"):
    """Create a study with rows in every table that a study may have.

    Two models answer questions on images in adaptive rounds, with failures. Answers are graded by a rule, by two judges
    (one with item texts) and their panel, compared in pairs, rated by two people, adjudicated and annotated. It has
    replaced verdicts, an unpriced call, a paid preflight and a deleted run. Needs `transactional_db`.
    """
    items = [
        {"key": f"{kind}-{n}", "input": f"{kind} question {n}", "target": "right", "category": kind,
         "image": make_image(n)}
        for kind in ("easy", "hard") for n in range(8)
    ]  # fmt: skip
    dataset = factories.make_dataset(
        f"{slug}-photos", items, approved=False, source="Photographs of the lab", licence="CC0"
    )
    dataset.approve(by="test", reason="ready")  # Stores the hash of its items.
    experiment = factories.make_experiment(
        slug, dataset=dataset, samples=3, adaptive=ADAPTIVE, scorers=["exact_match"], cache=False, max_usd=None,
        stop_after_attempts=1000, models=[factories.make_model("small"), factories.make_model("large")],
        title="Everything at once", description="Which model describes the photographs better?",
        owner=factories.make_team().owner,
    )  # fmt: skip
    run_control.launch(experiment, by=experiment.owner, wave="", reason="first")
    drain(_answer_photograph)
    _spend_outside_runs(experiment)
    _judge_study(experiment)
    _rate_study(experiment)
    return type(experiment).objects.get(pk=experiment.pk)


async def _answer_photograph(request):
    kind, digits = re.search(r"(easy|hard) question (\d+)", str(request.messages)).groups()
    number = int(digits)
    if number == 7:
        raise CallFailure(ErrorClass.CONTENT_REFUSED, "refused by a filter", http_status=400)
    is_right = kind == "easy" or number % 2 == 0 or "large" in request.model
    cost = None if number == 6 else Decimal("0.001")
    return build_reply(
        "right" if is_right else f"wrong, said {number}", cost_usd=cost, served_model=f"{request.model}-2026"
    )


def _spend_outside_runs(experiment):
    """Create a preflight that the experiment paid for, and a record of a deleted run."""
    model = experiment.language_models.order_by("pk").first()
    Preflight.objects.create(
        model=model, endpoint=model.endpoint, experiment=experiment, status="ok", actor="somebody",
        started_at=NOON, finished_at=NOON, cost_usd=Decimal("0.002"), input_tokens=9, output_tokens=3,
    )  # fmt: skip
    DeletedRun.objects.create(
        experiment=experiment, number=10**6, label="small, wave 1", trials=2, attempts=2,
        spent_usd=Decimal("0.003"), kept_usd=Decimal("0.001"),
    )  # fmt: skip
    change_money(experiment, spent="0.005", reserved="0.001")


def change_money(experiment, *, spent, reserved):
    """Add to the experiment's counters what the engine adds for calls outside its runs."""
    type(experiment).objects.filter(pk=experiment.pk).update(
        spent_usd=F("spent_usd") + Decimal(spent), reserved_usd=F("reserved_usd") + Decimal(reserved)
    )


def _judge_study(experiment):
    texts = make_item_texts(experiment.dataset, "own")
    turns = [{"role": "user", "content": "{{item_rubric}} {{criteria}} {{verdict_form}} {{answer}}"}]
    strict = make_rubric("own", "criteria", messages=turns, criteria=CRITERIA)
    plain = make_rubric("plain", "criteria", messages=[{**turns[0], "content": turns[0]["content"][16:]}],
                        criteria=CRITERIA)  # fmt: skip
    graders = [
        make_grader("strict", rubric=strict, text_set=texts, model=factories.make_model("judge-a")),
        make_grader("kind", rubric=plain, model=factories.make_model("judge-b")),
        make_grader("pairs", rubric=make_rubric("pairs", "pairwise")),
    ]
    request_verdicts(experiment, graders, list(experiment.waves.all()), by="test")
    drain(build_judge(_give_verdict))
    read_verdicts(experiment)
    panel = Panel.objects.create(name="both", rule="mean")
    panel.graders.set(graders[:2])
    panels.add_panel(experiment, panel)
    grade(experiment, scorers=["exact_match", {"name": "regex", "pattern": "said"}], by="test")
    rule = experiment.grade_conditions.get(scorer="regex")
    with allow_superseding():
        rule.gradings.filter(trial=rule.gradings.order_by("pk").first().trial).update(score=0.5)


def _give_verdict(request):
    text = str(request.messages)
    if "criteria" not in text and "correct" not in text:
        return {"winner": "a" if "wrong" in text else "tie", "reasoning": "The first is shorter."}
    return {"criteria": {"correct": "wrong" not in text, "complete": "said 3" not in text}, "reasoning": "Read."}


def _rate_study(experiment):
    queue = make_answer_queue(
        f"{experiment.slug}-people", experiment=experiment, dimensions=[], by=make_strict_rubric("score"),
        sample_items=4, answers_each=1, raters_wanted=3,
    )  # fmt: skip
    for value in (2, 4):
        rate_all(make_rater(queue, started=True), value=lambda due, value=value: 1 + (due.position + value) % 5)
    excluded = make_rater(queue, started=True)
    rate_all(excluded)
    excluded.exclude(by=experiment.owner, reason="answered at random")
    answers = Answer.objects.filter(experiment=experiment, status="done").order_by("trial")
    trial = Trial.objects.get(pk=answers.first().pk)
    for score in (2, 3):
        adjudicate(trial, scale=Scale(1, 5), score=score, reason="I looked it up", by=experiment.owner)
    for kind, text in (("note", "Look at this"), ("flag", "Odd"), ("tag", "photo")):
        annotate(trial, kind, text, by=experiment.owner)
