"""Blinding of raters of answers: they see question and answer, and never the author."""

import pytest

from evalsite.lib import permissions
from tests import factories
from tests.factories.gradings import make_gradings
from tests.factories.queues import make_answer_queue, make_rater, rate_all, sign_in
from tests.integration.rating.blinding import (
    N_QUESTIONS,
    RecordingClient,
    collect_rating_pages,
    is_secret_in,
    list_secrets_of_answers,
    make_experiment_with_secrets,
    rate_whole_session,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def study(db, settings, tmp_path):
    """Return a judged and rated study of two models on questions with images, targets and categories."""
    settings.MEDIA_ROOT = tmp_path
    experiment = make_experiment_with_secrets(has_norms=False)
    make_gradings(experiment, "judgemental", lambda trial: 3.0, reasoning="Reasoned so.")
    return make_answer_queue(
        "blindly", experiment=experiment, practice_items=1, attention_checks={"keyword-3": [1]},
        dimensions=[factories.make_dimension("goodness-internal", title="Good answer", instructions="How good is it?",
                                             low=1, high=5)],
    )  # fmt: skip


@pytest.mark.slow
def test_no_response_reveals_the_author_of_an_answer(study):
    rate_all(make_rater(study, "somebody-else", started=True), value=2)
    me = make_rater(study, "blind-person")
    rater = rate_whole_session(study, me.user, value=lambda step: 1 + step % 5, undo_at=(2,), forge_at=3)
    me.refresh_from_db()
    received = rater.join_received()
    assert me.finished_at
    assert me.ratings.given().count() == me.ratings.count() == 2 * (N_QUESTIONS - 2) + 2
    assert "A plain answer to 1." in received
    assert "What is shown, 1?" in received
    assert sorted(word for word in list_secrets_of_answers(study) if is_secret_in(received, word)) == []


def test_raters_cannot_open_pages_that_reveal_the_author(study):
    rater = sign_in(make_rater(study).user)
    trial, slug = study.answers.first().trial_id, study.experiment.slug
    addresses = (f"/trials/{trial}/", "/trials/", f"/experiments/{slug}/", f"/experiments/{slug}/agreement/",
               f"/experiments/{slug}/disagreements/{trial}/", f"/ratings/queues/{study.name}/")  # fmt: skip
    assert [rater.get(address).status_code for address in addresses] == [404] * len(addresses)


def test_the_leak_check_finds_secrets_on_a_members_page(study):
    teammate = factories.make_user("member", permissions.RESEARCHER)
    study.experiment.shared_with.add(teammate)
    member = RecordingClient(teammate)
    member.get(f"/ratings/queues/{study.name}/")
    member.get(f"/trials/{study.answers.first().trial_id}/")
    secrets = {word for word in list_secrets_of_answers(study) if is_secret_in(member.join_received(), word)}
    assert {"experimental", "slugged-set", "prompted", "Systemic", "judgemental", "served-9"} <= secrets
    assert secrets & {"alphonsina", "bettina"}


def test_the_pages_of_both_models_answers_look_alike(study):
    """Check that two pages differ only by the words of question and answer."""
    me = make_rater(study, started=True)
    pages = collect_rating_pages(study, me)
    assert len(pages["item"]) == 1
    assert pages["check"] == pages["item"]
