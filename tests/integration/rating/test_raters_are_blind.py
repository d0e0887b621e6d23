"""Blinding of raters: no response, from the first page to the last, contains a secret of the study."""

import pytest

from datasets_app.models import Asset
from evalsite.lib import permissions
from grading_app.grading.rating import session
from grading_app.models import Rating
from tests import factories
from tests.factories.queues import make_image, make_queue, make_rater, rate_all, sign_in
from tests.integration.rating.blinding import (
    RecordingClient,
    collect_rating_pages,
    is_secret_in,
    parse_rating_page,
    rate_whole_session,
)
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
ITEMS = 8


def make_items_with_secrets():
    """Return items whose revealing fields contain words that occur nowhere else."""
    return [
        {
            "key": f"keyword-{number}",
            "input": f"A caption that says captious{number}.",
            "image": make_image(number),
            "category": f"categorical-{number % 2}",
            "target": f"targeted-{number}",
            "choices": [f"choosy-{number}"],
            "metadata": {"photographer": f"metadatum-{number}"},
            "norms": {"valence": 4.8371 + number / 10},
        }
        for number in range(ITEMS)
    ]


@shared_rows
def study():
    """Return a study of images with norms and model answers, and another rater who has finished."""
    dataset = factories.make_dataset("slugged-set", make_items_with_secrets(), description="describable")
    dimension = factories.make_dimension(
        "valence-internal", title="Valence", instructions="How pleasant?", labels={"1": "Low", "7": "High"}
    )
    queue = make_queue(
        dataset=dataset, dimensions=[dimension], practice_items=1, attention_checks={"keyword-7": [7]}, raters_wanted=3
    )
    experiment = factories.make_experiment(
        "experimental", dataset=dataset, models=[factories.make_model("modelled")], dimensions=[dimension]
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda *_: {"answer": "answerable", "rating": 5})
    rate_all(make_rater(queue, "somebody-else", started=True), value=2)
    return queue


def list_secrets(queue):
    words = {"slugged-set", "describable", "somebody-else", "experimental", "modelled", "answerable", "filed-"}
    words |= {queue.owner.username, queue.dataset.content_hash, "valence-internal"}
    for asset in Asset.objects.all():
        words |= {asset.sha256, asset.sha256[:12], asset.original_name}
    for item in queue.dataset.items.all():
        words |= {item.key, item.category, item.target, item.choices[0], item.metadata["photographer"]}
        words |= {f"captious{item.position}", f"{item.norms.get().mean:.3f}", f"{item.norms.get().mean:.2f}"}
    return words


@pytest.mark.slow
def test_no_response_to_a_rater_contains_a_secret(study):
    me = make_rater(study, "blind-person")
    rater = rate_whole_session(study, me.user, value=lambda step: 1 + step % 7, undo_at=(2, 5), forge_at=3)
    me.refresh_from_db()
    assert me.finished_at
    assert me.ratings.given().count() == ITEMS
    received = rater.join_received()
    assert "Thank you" in received
    assert sorted(word for word in list_secrets(study) if is_secret_in(received, word)) == []


def test_the_leak_check_finds_secrets_on_a_members_page(study):
    """Show that the same check finds the secrets on a member's page."""
    member = RecordingClient(factories.make_user("member", permissions.RESEARCHER))
    member.get(f"/ratings/queues/{study.name}/")
    secrets = [word for word in list_secrets(study) if is_secret_in(member.join_received(), word)]
    assert {"slugged-set", "somebody-else", "keyword-3", "categorical-1"} <= set(secrets)


@pytest.mark.slow
def test_check_pages_look_like_item_pages(study):
    """Check that only practice is marked; a check's page differs from an item's only by its position."""
    me = make_rater(study, started=True)
    pages = collect_rating_pages(study, me)
    assert len(pages["item"]) == 1
    assert pages["check"] == pages["item"]
    assert pages["practice"] != pages["item"]


def test_an_image_is_served_only_when_its_item_is_due(study):
    me = make_rater(study, started=True)
    client, name = sign_in(me.user), study.name
    answers = [client.get(f"/ratings/{name}/image/{place}/").status_code for place in (0, 1, 2, 8, 9)]
    assert answers == [404, 200, 404, 404, 404]


def test_the_served_image_belongs_to_the_item_being_rated(study):
    me = make_rater(study, started=True)
    rating = me.find_next_rating()
    content = b"".join(sign_in(me.user).get(f"/ratings/{study.name}/image/{rating.position}/").streaming_content)
    assert content == read_image(rating)


def read_image(rating):
    return rating.item.image.file.read_bytes()


def test_images_are_never_cached(study):
    me = make_rater(study, started=True)
    response = sign_in(me.user).get(f"/ratings/{study.name}/image/1/")
    assert "no-store" in response["Cache-Control"]
    assert "private" in response["Cache-Control"]
    assert response["X-Content-Type-Options"] == "nosniff"


def test_a_rater_cannot_submit_another_raters_form(study):
    mine, other = (make_rater(study, started=True) for _ in range(2))
    page = sign_in(mine.user).get(f"/ratings/{study.name}/")
    shown, _ = parse_rating_page(page)
    sign_in(other.user).post(f"/ratings/{study.name}/rate/", {"shown": shown, "rating": "4"})
    assert not Rating.objects.given().filter(assignment__in=[mine, other]).exists()


def test_an_image_rated_before_it_finished_loading_is_still_sent(study):
    me = make_rater(study, started=True)
    assert session.rate(me, position=1, value=4, seconds=1.0)
    client, name = sign_in(me.user), study.name
    assert [client.get(f"/ratings/{name}/image/{place}/").status_code for place in (1, 2, 3)] == [200, 200, 404]
