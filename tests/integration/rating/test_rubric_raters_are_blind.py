"""Blinding of raters by a rubric: they see neither the authors of answers nor other verdicts.

The tests check all responses of the server, as for raters on dimensions.
"""

import re

import pytest

from grading_app.models import Grading, Preference, Rubric
from grading_app.rating import session
from runs_app.models import TextSet, Trial
from tests import factories
from tests.factories.gradings import make_gradings
from tests.factories.queues import make_answer_queue, make_image, make_rater, rate_all, signed_in
from tests.integration.rating.test_answer_raters_are_blind import said
from tests.integration.rating.test_answer_raters_are_blind import secrets_of as secrets_of_answers
from tests.integration.rating.test_raters_are_blind import Listener, page_parts, tells, without_tokens

pytestmark = pytest.mark.django_db
ITEMS = 4
CRITERIA = [{"name": "correct", "description": "Agrees.", "weight": 31.7}, {"name": "complete", "weight": 2.9}]


@pytest.fixture
def study(db, settings, tmp_path):
    """Return a study of two models on four questions with images and norms, judged by the same rubric."""
    settings.MEDIA_ROOT = tmp_path
    items = [
        {
            "key": f"keyword-{number}", "category": f"categorical-{number % 2}", "input": f"What is shown, {number}?",
            "target": f"targeted-{number}", "metadata": {"source": f"metadatum-{number}"}, "image": make_image(number),
            "grading_scheme": f"schematic-{number}", "norms": {"valence": 4.8371 + number / 10},
        }
        for number in range(ITEMS)
    ]  # fmt: skip
    experiment = factories.make_experiment(
        "experimental", title="Titular", dataset=factories.make_dataset("slugged-set", items),
        models=[factories.make_model(name) for name in ("alphonsina", "bettina")],
        prompts=[factories.make_prompt("prompted", system="Systemic words.", user="Wrapped: {{image}}{{input}}")],
        samplers=[factories.make_sampler("sampled-warm", temperature=1.25)],
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=said)
    return experiment


def make_study_queue(experiment, kind, *, says="", **fields):
    shown = "{{answer_a}}{{answer_b}}" if kind == "pairwise" else "{{answer}}"
    messages = [{"role": "system", "content": f"Be strict: {{{{criteria}}}} {{{{verdict_form}}}} {says}"},
                {"role": "user", "content": shown}]  # fmt: skip
    rubric = Rubric.objects.create(
        name="rubricated", kind=kind, messages=messages, status="approved",
        criteria=CRITERIA if kind == "criteria" else [], created_by=experiment.owner,
    )  # fmt: skip
    make_gradings(experiment, "judgemental", lambda trial: 0.8283, rubric=rubric, reasoning="Reasoned so.")
    queue = make_answer_queue("blindly", experiment=experiment, dimensions=[], by=rubric, practice_items=1, **fields)
    rate_all(make_rater(queue, "somebody-else", started=True), value=1)
    return queue


def secrets_of(queue):
    words = secrets_of_answers(queue) | {"0.8283", "0.828", "31.7", "2.9", "rubricated", '"score"', "```"}
    words |= {queue.rubric.content_hash, queue.rubric.content_hash[:12]}
    return words | {f"{item.norms.get().mean:.2f}" for item in queue.dataset.items.all()}


def whole_session(queue, user):
    rater = Listener(user)
    rater.get("/")
    page = rater.post(f"/ratings/{queue.name}/start/")
    for step in range(40):
        shown, image = page_parts(page)
        if not shown:
            break
        assert rater.get(image).status_code == 200
        page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": shown, "rating": str(step % 2)})
        if step in (2, 3):
            page = rater.post(f"/ratings/{queue.name}/undo/")
        if step == 4:
            page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": "made up", "rating": "99"})
    return rater


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["criteria", "pairwise"])
def test_no_response_reveals_the_author_or_other_verdicts(study, kind):
    queue = make_study_queue(study, kind, attention_checks={} if kind == "pairwise" else {"keyword-3": [1]})
    me = make_rater(queue, "blind-person")
    rater = whole_session(queue, me.user)
    me.refresh_from_db()
    assert me.finished_at
    given = Preference if kind == "pairwise" else Grading
    assert given.objects.filter(condition__assignment=me).count() == (3 if kind == "pairwise" else 4)
    everything = "\n".join(rater.heard)
    for told in ("A plain answer to 1.", "What is shown, 1?", "Be strict"):
        assert told in everything
    assert sorted(word for word in secrets_of(queue) if tells(everything, word)) == []


@pytest.mark.slow
def test_only_item_fields_named_by_the_rubric_are_shown(study):
    texts = TextSet.objects.create(name="texts", dataset=study.dataset)
    for item in study.dataset.items.all():
        texts.texts.create(item=item, text=f"itemised-{item.position}")
    TextSet.objects.filter(pk=texts.pk).update(status="approved", approved_at=factories.NOON)
    texts.refresh_from_db()
    queue = make_study_queue(study, "criteria", says="{{target}} {{item_rubric}} {{meta.source}}", text_set=texts)
    everything = "\n".join(whole_session(queue, make_rater(queue).user).heard)
    for number in range(ITEMS):
        for shown in ("targeted", "itemised", "metadatum"):
            assert f"{shown}-{number}" in everything
        for hidden in ("schematic", "categorical", "keyword"):
            assert f"{hidden}-{number}" not in everything


@pytest.mark.slow
def test_pair_pages_look_alike_in_both_orders(study):
    """Check that two pages differ only by the words of questions and answers."""
    me = make_rater(make_study_queue(study, "pairwise"), started=True)
    pages, firsts = set(), set()
    runs = dict(Trial.objects.values_list("pk", "run"))
    while waiting := me.find_next_rating():
        html = signed_in(me.user).get("/ratings/blindly/").content.decode()
        html = re.sub(r'(csrfmiddlewaretoken" value|"X-CSRFToken": |name="shown" value)[^>]+', "", html)
        html = re.sub(r"image/\d+/|\d+ of \d+|value=\"\d+\" aria-label|disabled", "", html)
        html = re.sub(r"What is shown, \d\?|A plain answer to \d\.", "", html)
        if waiting.kind == "item":
            pages.add(re.sub(r"\s+", " ", html))
            firsts.add(runs[waiting.trial_id])
        session.rate(me, position=waiting.position, value=1, seconds=1)
    assert len(pages) == 1
    assert firsts


def test_the_instructions_equal_the_judges_without_the_reply_format(study):
    me = make_rater(make_study_queue(study, "criteria"))
    welcome = without_tokens(signed_in(me.user).get("/ratings/blindly/").content.decode())
    assert "Be strict: - correct: Agrees." in welcome
    assert "[the answer]" in welcome
    assert "JSON" not in welcome
