"""Blinding of raters by a rubric: they see neither the authors of answers nor other verdicts.

The tests check all responses of the server, as for raters on dimensions.
"""

import pytest

from grading_app.grading.rating import session
from grading_app.models import Grading, Preference, Rubric
from runs_app.models import TextSet, Trial
from tests import factories
from tests.factories.gradings import make_gradings
from tests.factories.queues import make_answer_queue, make_rater, rate_all, sign_in
from tests.integration.rating.blinding import (
    N_QUESTIONS,
    is_secret_in,
    list_secrets_of_answers,
    make_experiment_with_secrets,
    rate_whole_session,
    remove_form_tokens,
    strip_rating_page,
)

pytestmark = pytest.mark.django_db
CRITERIA = [{"name": "correct", "description": "Agrees.", "weight": 31.7}, {"name": "complete", "weight": 2.9}]


@pytest.fixture
def study(db, settings, tmp_path):
    """Return a study of two models on four questions with images and norms, judged by the same rubric."""
    settings.MEDIA_ROOT = tmp_path
    return make_experiment_with_secrets(has_norms=True)


def make_study_queue(experiment, kind, *, text="", **fields):
    content = "{{answer_a}}{{answer_b}}" if kind == "pairwise" else "{{answer}}"
    messages = [{"role": "system", "content": f"Be strict: {{{{criteria}}}} {{{{verdict_form}}}} {text}"},
                {"role": "user", "content": content}]  # fmt: skip
    rubric = Rubric.objects.create(
        name="rubricated", kind=kind, messages=messages, status="approved",
        criteria=CRITERIA if kind == "criteria" else [], created_by=experiment.owner,
    )  # fmt: skip
    make_gradings(experiment, "judgemental", lambda trial: 0.8283, rubric=rubric, reasoning="Reasoned so.")
    queue = make_answer_queue("blindly", experiment=experiment, dimensions=[], by=rubric, practice_items=1, **fields)
    rate_all(make_rater(queue, "somebody-else", started=True), value=1)
    return queue


def list_secrets(queue):
    words = list_secrets_of_answers(queue) | {"0.8283", "0.828", "31.7", "2.9", "rubricated", '"score"', "```"}
    words |= {queue.rubric.content_hash, queue.rubric.content_hash[:12]}
    return words | {f"{item.norms.get().mean:.2f}" for item in queue.dataset.items.all()}


def rate_alternately(queue, user):
    return rate_whole_session(queue, user, value=lambda step: step % 2, undo_at=(2, 3), forge_at=4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["criteria", "pairwise"])
def test_no_response_reveals_the_author_or_other_verdicts(study, kind):
    queue = make_study_queue(study, kind, attention_checks={} if kind == "pairwise" else {"keyword-3": [1]})
    me = make_rater(queue, "blind-person")
    rater = rate_alternately(queue, me.user)
    me.refresh_from_db()
    assert me.finished_at
    verdicts = Preference if kind == "pairwise" else Grading
    assert verdicts.objects.filter(condition__assignment=me).count() == (3 if kind == "pairwise" else 4)
    received = rater.join_received()
    for text in ("A plain answer to 1.", "What is shown, 1?", "Be strict"):
        assert text in received
    assert sorted(word for word in list_secrets(queue) if is_secret_in(received, word)) == []


@pytest.mark.slow
def test_only_item_fields_named_by_the_rubric_are_shown(study):
    texts = TextSet.objects.create(name="texts", dataset=study.dataset)
    for item in study.dataset.items.all():
        texts.texts.create(item=item, text=f"itemised-{item.position}")
    TextSet.objects.filter(pk=texts.pk).update(status="approved", approved_at=factories.NOON)
    texts.refresh_from_db()
    queue = make_study_queue(study, "criteria", text="{{target}} {{item_rubric}} {{meta.source}}", text_set=texts)
    received = rate_alternately(queue, make_rater(queue).user).join_received()
    for number in range(N_QUESTIONS):
        for visible in ("targeted", "itemised", "metadatum"):
            assert f"{visible}-{number}" in received
        for hidden in ("schematic", "categorical", "keyword"):
            assert f"{hidden}-{number}" not in received


@pytest.mark.slow
def test_pair_pages_look_alike_in_both_orders(study):
    """Check that two pages differ only by the words of questions and answers."""
    me = make_rater(make_study_queue(study, "pairwise"), started=True)
    pages, firsts = set(), set()
    runs = dict(Trial.objects.values_list("pk", "run"))
    while waiting := me.find_next_rating():
        page = sign_in(me.user).get("/ratings/blindly/")
        if waiting.kind == "item":
            pages.add(strip_rating_page(page))
            firsts.add(runs[waiting.trial_id])
        session.rate(me, position=waiting.position, value=1, seconds=1)
    assert len(pages) == 1
    assert firsts


def test_the_instructions_equal_the_judges_without_the_reply_format(study):
    me = make_rater(make_study_queue(study, "criteria"))
    welcome = remove_form_tokens(sign_in(me.user).get("/ratings/blindly/").content.decode())
    assert "Be strict: - correct: Agrees." in welcome
    assert "[the answer]" in welcome
    assert "JSON" not in welcome
