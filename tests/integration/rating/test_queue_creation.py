"""The life of a queue over HTTP, from the form to closing; group members have read-only access."""

import pytest

from datasets_app.models import Dataset
from evalsite.lib import permissions
from grading_app.models import RatingQueue
from tests import factories
from tests.factories.queues import make_numbered_items, make_queue, make_rater, rate_all, sign_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def asker(db):
    return factories.make_user("asker", permissions.RESEARCHER)


@pytest.fixture
def form_data(db):
    dataset = make_numbered_items(items=5)
    return {
        "name": "first-study",
        "title": "How do these feel?",
        "instructions": "Go by your first feeling.",
        "dataset": dataset.pk,
        "dimensions": [factories.make_dimension("valence").pk, factories.make_dimension("arousal", high=9).pk],
        "raters_wanted": 3,
        "items_per_rater": "",
        "practice_items": 1,
        "attention_checks": "thing-4 = 7\nthing-3=1, 2",
    }


def test_the_form_creates_a_draft_owned_by_the_user(asker, form_data):
    response = sign_in(asker).post("/ratings/queues/new/", form_data)
    queue = RatingQueue.objects.get()
    assert response.url == "/ratings/queues/first-study/"
    assert (queue.owner, queue.status, queue.attention_checks) == (asker, "draft", {"thing-4": [7], "thing-3": [1, 2]})
    assert queue.dimensions.count() == 2


def test_an_empty_choice_has_a_name_instead_of_dashes(asker, form_data):
    text = sign_in(asker).get("/ratings/queues/new/").content.decode()
    assert '<option value="" selected>Choose one</option>' in text
    assert "-----" not in text


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "queues", "reserved for a page"),
        ("name", "new", "reserved for a page"),
        ("name", "Not A Name", "small letters"),
        ("dimensions", [], "required"),
        ("raters_wanted", "0", "greater than or equal to 1"),
        ("attention_checks", "thing-4", "is not valid"),
        ("attention_checks", "thing-4 = seven", "is not valid"),
        ("attention_checks", "thing-4 = 7\nthing-4 = 6", "twice"),
        ("attention_checks", "nowhere = 7", "no item nowhere"),
        ("attention_checks", "thing\0-4 = 7", "Null characters are not allowed."),
        ("attention_checks", "thing-4 = 8", "must be on the scale of every dimension"),
        ("practice_items", "3", "No items are left to rate"),
    ],
)
def test_a_form_error_appears_at_its_field_and_nothing_is_saved(asker, form_data, field, value, message):
    response = sign_in(asker).post("/ratings/queues/new/", {**form_data, field: value})
    assert response.status_code == 200
    assert message in " ".join(response.context["form"].errors[field])
    assert not RatingQueue.objects.exists()


def test_two_versions_of_the_same_dimension_are_refused(asker, form_data):
    second = factories.make_dimension("valence", version=2)
    response = sign_in(asker).post(
        "/ratings/queues/new/", {**form_data, "dimensions": [*form_data["dimensions"], second.pk]}
    )
    assert "one version" in " ".join(response.context["form"].errors["dimensions"])


def test_only_approved_datasets_can_be_chosen(asker, form_data):
    draft = factories.make_dataset("unready", 3, approved=False)
    response = sign_in(asker).post("/ratings/queues/new/", {**form_data, "dataset": draft.pk})
    assert response.context["form"].errors["dataset"]


def test_the_form_of_a_draft_shows_and_changes_its_values(asker, form_data):
    client = sign_in(asker)
    client.post("/ratings/queues/new/", form_data)
    page = client.get("/ratings/queues/first-study/edit/").content.decode()
    assert "thing-3 = 1, 2" in page
    client.post("/ratings/queues/first-study/edit/", {**form_data, "title": "Better"})
    assert RatingQueue.objects.get().title == "Better"


def test_opening_and_closing_record_their_reason_in_the_history(asker, form_data):
    client = sign_in(asker)
    client.post("/ratings/queues/new/", form_data)
    for verb, status in (("open", "open"), ("close", "closed"), ("open", "open")):
        client.post(f"/ratings/queues/first-study/{verb}/", {"reason": f"because {verb}"})
        assert RatingQueue.objects.get().status == status
    assert [change.reason for change in RatingQueue.objects.get().history.filter(aspect="status")] == [
        "because open", "because close", "because open",
    ]  # fmt: skip
    assert client.get("/ratings/queues/first-study/edit/").status_code == 404
    for reason in ("long" * 200, "a\0b"):
        response_text = client.post(
            "/ratings/queues/first-study/close/", {"reason": reason}, follow=True
        ).content.decode()
        assert "Reason: " in response_text
        assert RatingQueue.objects.get().status == "open"


def test_only_a_draft_queue_can_be_deleted(asker):
    make_queue("gone", owner=asker, opened=False)
    make_queue("stays", owner=asker, dimensions=[factories.make_dimension("arousal")])
    client = sign_in(asker)
    client.post("/ratings/queues/gone/delete/")
    response = client.post("/ratings/queues/stays/delete/", follow=True)
    assert "its ratings stay" in response.content.decode()
    assert [queue.name for queue in RatingQueue.objects.all()] == ["stays"]


@pytest.mark.slow
def test_a_button_creates_norms_after_the_queue_is_closed(asker):
    queue = make_queue(owner=asker)
    rater = make_rater(queue, started=True)
    rate_all(rater)
    client = sign_in(asker)
    assert "Create norms" not in client.get("/ratings/queues/study/").content.decode()
    response_text = client.post("/ratings/queues/study/norms/", {"reason": "done"}, follow=True).content.decode()
    assert "study is open: raters can still undo ratings. Close it first" in response_text
    assert not Dataset.objects.filter(status="draft").exists()
    client.post("/ratings/queues/study/close/")
    assert "Create norms" in client.get("/ratings/queues/study/").content.decode()
    response = client.post("/ratings/queues/study/norms/", {"reason": "done"})
    assert "The ratings have changed since then" not in client.get("/ratings/queues/study/").content.decode()
    client.post("/ratings/queues/study/raters/1/exclude/", {"reason": "did not read"})
    page = " ".join(client.get("/ratings/queues/study/").content.decode().split())
    assert "The ratings have changed since then. Create norms again" in page
    assert response.url == f"/datasets/{queue.dataset.slug}/2/"
    assert Dataset.objects.filter(status="draft").count() == 1


def test_only_accounts_with_the_rater_role_can_be_added(asker):
    queue = make_queue(owner=asker)
    rater, viewer = factories.make_user("may-rate", permissions.RATER), factories.make_user("looks", permissions.VIEWER)
    client = sign_in(asker)
    for user in (rater, viewer, rater):
        client.post("/ratings/queues/study/assign/", {"user": user.pk})
    assert [assignment.user for assignment in queue.assignments.all()] == [rater]


@pytest.mark.parametrize("verb", ["release", "exclude"])
def test_buttons_release_or_exclude_a_rater(asker, verb):
    queue = make_queue(owner=asker)
    make_rater(queue, started=True)
    sign_in(asker).post(f"/ratings/queues/study/raters/1/{verb}/", {"reason": "went home"})
    assert queue.history.first().reason == "went home"


def test_group_members_can_view_but_not_change_a_queue():
    queue = make_queue()
    client = sign_in(factories.make_user("colleague", permissions.RESEARCHER))
    page = client.get("/ratings/queues/study/").content.decode()
    assert "/invite/" not in page
    assert "/close/" not in page
    for address in ("close/", "norms/", "invite/", "assign/", "raters/1/exclude/", "nonsense/"):
        assert client.post(f"/ratings/queues/study/{address}").status_code == 404
    queue.refresh_from_db()
    assert queue.is_open


def test_an_unknown_action_is_not_found(asker):
    make_rater(make_queue(owner=asker))
    client = sign_in(asker)
    assert client.post("/ratings/queues/study/nonsense/").status_code == 404
    assert client.post("/ratings/queues/study/raters/1/nonsense/").status_code == 404


def test_the_admin_shows_queues_and_raters_read_only(asker):
    queue = make_queue(owner=asker)
    rater = make_rater(queue, started=True)
    root = factories.make_user("root", superuser=True)
    for address in ("ratingqueue/", f"ratingqueue/{queue.pk}/change/", f"raterassignment/{rater.pk}/change/"):
        page = sign_in(root).get(f"/admin/grading_app/{address}")
        assert page.status_code == 200
        assert 'name="_save"' not in page.content.decode()
    assert sign_in(root).post(f"/admin/grading_app/ratingqueue/{queue.pk}/delete/").status_code == 403
    assert sign_in(asker).get("/admin/grading_app/ratingqueue/").status_code != 200
