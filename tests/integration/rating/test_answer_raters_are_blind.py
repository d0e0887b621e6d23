"""Blinding of raters of answers: they see question and answer, and never the author."""

import re

import pytest

from datasets_app.models import Asset
from evalsite.lib import permissions
from grading_app.models import GradeCondition
from grading_app.rating import session
from tests import factories
from tests.factories.gradings import make_gradings
from tests.factories.queues import make_answer_queue, make_image, make_rater, rate_all, signed_in
from tests.integration.rating.test_raters_are_blind import Listener, page_parts, tells

pytestmark = pytest.mark.django_db
ITEMS = 4


@pytest.fixture
def study(db, settings, tmp_path):
    """Return a judged and rated study of two models on questions with images, targets and categories."""
    settings.MEDIA_ROOT = tmp_path
    items = [
        {
            "key": f"keyword-{number}", "category": f"categorical-{number % 2}", "input": f"What is shown, {number}?",
            "target": f"targeted-{number}", "metadata": {"source": f"metadatum-{number}"}, "image": make_image(number),
            "grading_scheme": f"schematic-{number}",
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
    make_gradings(experiment, "judgemental", lambda trial: 3.0, reasoning="Reasoned so.")
    return make_answer_queue(
        "blindly", experiment=experiment, practice_items=1, attention_checks={"keyword-3": [1]},
        dimensions=[factories.make_dimension("goodness-internal", title="Good answer", instructions="How good is it?",
                                             low=1, high=5)],
    )  # fmt: skip


def said(item, _dimension, _index):
    return {"answer": f"A plain answer to {item.position}.", "reasoning": "Thought out.", "response_id": "resp-77",
            "served_model": "vendor/served-9", "raw_response": "Raw words."}  # fmt: skip


def secrets_of(queue):
    experiment = queue.experiment
    words = {"experimental", "Titular", "slugged-set", "alphonsina", "bettina", "prompted", "Systemic", "Wrapped"}
    words |= {
        "sampled-warm",
        "judgemental",
        "Reasoned so",
        "Thought out",
        "resp-77",
        "served-9",
        "Raw words",
        "goodness-internal",
    }
    words |= {"goodness-internal", "somebody-else", queue.owner.username, queue.dataset.content_hash}
    words |= set(experiment.conditions.values_list("condition_id", flat=True))
    words |= set(GradeCondition.objects.values_list("grade_condition_id", flat=True))
    for item in queue.dataset.items.all():
        words |= {item.key, item.category, item.target, item.metadata["source"], item.grading_scheme}
    for asset in Asset.objects.all():
        words |= {asset.sha256, asset.sha256[:12], asset.original_name}
    return words


def whole_session(queue, user):
    rater = Listener(user)
    rater.get("/")
    page = rater.post(f"/ratings/{queue.name}/start/")
    for step in range(40):
        shown, image = page_parts(page)
        if not shown:
            break
        assert rater.get(image).status_code == 200
        page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": shown, "rating": str(1 + step % 5)})
        if step == 2:
            page = rater.post(f"/ratings/{queue.name}/undo/")
        if step == 3:
            page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": "made up", "rating": "99"})
    return rater


@pytest.mark.slow
def test_no_response_reveals_the_author_of_an_answer(study):
    rate_all(make_rater(study, "somebody-else", started=True), value=2)
    me = make_rater(study, "blind-person")
    rater = whole_session(study, me.user)
    me.refresh_from_db()
    everything = "\n".join(rater.heard)
    assert me.finished_at
    assert me.ratings.given().count() == me.ratings.count() == 2 * (ITEMS - 2) + 2
    assert "A plain answer to 1." in everything
    assert "What is shown, 1?" in everything
    assert sorted(word for word in secrets_of(study) if tells(everything, word)) == []


def test_raters_cannot_open_pages_that_reveal_the_author(study):
    rater = signed_in(make_rater(study).user)
    trial, slug = study.answers.first().trial_id, study.experiment.slug
    telling = (f"/trials/{trial}/", "/trials/", f"/experiments/{slug}/", f"/experiments/{slug}/agreement/",
               f"/experiments/{slug}/disagreements/{trial}/", f"/ratings/queues/{study.name}/")  # fmt: skip
    assert [rater.get(address).status_code for address in telling] == [404] * len(telling)


def test_the_leak_check_finds_secrets_on_a_members_page(study):
    teammate = factories.make_user("member", permissions.RESEARCHER)
    study.experiment.shared_with.add(teammate)
    member = Listener(teammate)
    member.get(f"/ratings/queues/{study.name}/")
    member.get(f"/trials/{study.answers.first().trial_id}/")
    found = {word for word in secrets_of(study) if tells("\n".join(member.heard), word)}
    assert {"experimental", "slugged-set", "prompted", "Systemic", "judgemental", "served-9"} <= found
    assert found & {"alphonsina", "bettina"}


def test_the_pages_of_both_models_answers_look_alike(study):
    """Check that two pages differ only by the words of question and answer."""
    me = make_rater(study, started=True)
    pages = {}
    while waiting := me.find_next_rating():
        html = signed_in(me.user).get(f"/ratings/{study.name}/").content.decode()
        html = re.sub(r'(csrfmiddlewaretoken" value|"X-CSRFToken": |name="shown" value)[^>]+', "", html)
        html = re.sub(r"image/\d+/|\d+ of \d+|value=\"\d+\" aria-label|disabled", "", html)
        html = re.sub(r"What is shown, \d\?|A plain answer to \d\.", "", html)
        pages.setdefault(waiting.kind, set()).add(re.sub(r"\s+", " ", html))
        session.rate(me, position=waiting.position, value=3, seconds=1)
    assert len(pages["item"]) == 1
    assert pages["check"] == pages["item"]
