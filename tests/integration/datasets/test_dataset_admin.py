"""Curation in the admin: every transition is a POST with a reason, by those who may."""

import pytest
from django.urls import reverse

from datasets_app import curation
from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from datasets_app.models import Dataset, Item
from tests import factories
from tests.factories.files import build_archive, build_picture

pytestmark = pytest.mark.django_db
LIST, ITEMS = "admin:datasets_app_dataset_changelist", "admin:datasets_app_item_changelist"


@pytest.fixture
def researcher(db):
    user = factories.make_user("researcher", "Researcher")
    user.is_staff = True
    user.save()
    return user


@pytest.fixture
def web(client, curator):
    client.force_login(curator)
    return client


def act(web, verb: str, *rows, address: str = LIST, **data):
    chosen = [row.pk for row in rows]
    return web.post(reverse(address), {"action": verb, "_selected_action": chosen, **data}, follow=True)


def build_change_address(dataset: Dataset) -> str:
    return reverse("admin:datasets_app_dataset_change", args=[dataset.pk])


def build_form_data(dataset: Dataset, **data) -> dict:
    fields = ("title", "description", "source", "licence")
    return {name: getattr(dataset, name) for name in fields} | data


def test_approval_asks_for_a_reason_and_then_approves(web, draft):
    response = act(web, "approve", draft)
    assert "Approve: reason" in response.content.decode()
    assert Dataset.objects.get().is_draft
    act(web, "approve", draft, confirmed="yes", reason="read by two curators")
    draft.refresh_from_db()
    assert draft.status == "approved"
    change = draft.history.first()
    assert (change.by.username, change.reason) == ("curator", "read by two curators")


def test_without_a_reason_it_asks_again(web, draft):
    response = act(web, "approve", draft, confirmed="yes", reason="   ")
    assert "Enter a reason" in response.content.decode()
    assert Dataset.objects.get().is_draft


def test_a_button_of_the_form_does_the_same(web, draft):
    page = web.get(build_change_address(draft)).content.decode()
    assert 'name="_row_action" value="approve"' in page
    assert 'value="archive"' not in page
    response = web.post(build_change_address(draft), build_form_data(draft, title="A title", _row_action="approve"))
    assert "Approve: reason" in response.content.decode()
    draft.refresh_from_db()
    assert (draft.title, draft.status) == ("A title", "draft")


def test_get_requests_change_nothing(web, draft):
    chosen = {
        "action": "approve",
        "_selected_action": draft.pk,
        "confirmed": "yes",
        "reason": "x",
        "_row_action": "approve",
    }
    for address in (
        reverse(LIST),
        build_change_address(draft),
        reverse("admin:datasets_app_dataset_delete", args=[draft.pk]),
    ):
        web.get(address, chosen)
    web.get(reverse(ITEMS), chosen | {"action": "exclude", "_selected_action": draft.items.first().pk})
    draft.refresh_from_db()
    assert (draft.status, draft.items.active().count()) == ("draft", 9)


def test_archive_and_duplicate(web, draft):
    draft.approve(by="a test", reason="ok")
    act(web, "duplicate", draft, confirmed="yes")
    act(web, "archive", draft, confirmed="yes", reason="superseded")
    assert [str(row) + row.status for row in Dataset.objects.all()] == ["set@2draft", "set@1archived"]


def test_impossible_actions_are_reported_and_the_others_performed(web, draft):
    other = factories.make_dataset("other")
    page = act(web, "approve", draft, other, confirmed="yes", reason="ok").content.decode()
    assert "Approve: 1 done" in page
    assert "Other@1 is approved; only a draft can change" in page


def test_a_researcher_neither_approves_nor_archives(client, researcher, draft):
    client.force_login(researcher)
    assert 'value="approve"' not in client.get(build_change_address(draft)).content.decode()
    for verb in ("approve", "archive"):
        act(client, verb, draft, confirmed="yes", reason="x")
    client.post(build_change_address(draft), build_form_data(draft, _row_action="approve"))
    draft.refresh_from_db()
    assert draft.is_draft


def test_a_viewer_of_the_site_does_not_see_the_admin(client, draft):
    client.force_login(factories.make_user("viewer", "Viewer"))
    assert client.get(reverse(LIST)).status_code == 404
    act(client, "approve", draft, confirmed="yes", reason="x")
    assert Dataset.objects.get().is_draft


def test_the_status_is_not_a_field_of_the_form(web, draft):
    web.post(
        build_change_address(draft),
        build_form_data(draft, status="approved", slug="evil", content_hash="x", item_count=0),
    )
    draft.refresh_from_db()
    assert (draft.status, draft.slug, draft.content_hash, draft.item_count) == ("draft", "set", "", 9)


def test_the_title_of_an_approved_dataset_changes_with_a_reason_and_a_line_of_history(web, draft):
    draft.approve(by="a test", reason="checked")
    page = web.post(build_change_address(draft), build_form_data(draft, title="A better title"))
    assert "the history keeps the reason" in page.content.decode()
    draft.refresh_from_db()
    assert draft.title != "A better title"
    web.post(build_change_address(draft), build_form_data(draft, title="A better title", reason="A slip"))
    draft.refresh_from_db()
    assert draft.title == "A better title"
    (change,) = draft.history.filter(aspect="title")
    assert (change.actor, change.to_value, change.reason) == ("curator", "A better title", "A slip")


def test_the_title_of_a_draft_changes_with_a_line_of_history_and_no_reason(web, draft):
    assert "reason" not in web.get(build_change_address(draft)).context["adminform"].form.fields
    web.post(build_change_address(draft), build_form_data(draft, title="A better title"))
    (change,) = draft.history.filter(aspect="title")
    assert (change.actor, change.to_value) == ("curator", "A better title")


def test_the_page_shows_the_history_escaped(web, draft):
    draft.exclude_items(["k1"], by="a test", reason="<script>alert(1)</script>")
    page = web.get(build_change_address(draft)).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page


def test_a_draft_is_deleted_after_confirmation(web, draft):
    address = reverse("admin:datasets_app_dataset_delete", args=[draft.pk])
    assert "Are you sure" in web.get(address).content.decode()
    web.post(address, {"post": "yes"})
    assert not Dataset.objects.exists()


def test_approved_or_used_datasets_are_not_deleted(web, draft):
    curation.duplicate(draft, by="a test")
    address = reverse("admin:datasets_app_dataset_delete", args=[draft.pk])
    assert "set@2" in web.get(address).content.decode()
    web.post(address, {"post": "yes"})
    draft.approve(by="a test", reason="ok")
    assert web.post(address, {"post": "yes"}).status_code == 403
    assert Dataset.objects.count() == 2
    assert "delete_selected" not in web.get(reverse(LIST)).content.decode()


def test_items_are_excluded_with_a_reason_and_included_again(web, draft):
    chosen = list(draft.items.filter(key__in=["k1", "k2"]))
    response = act(web, "exclude", *chosen, address=ITEMS)
    assert "Exclude: reason" in response.content.decode()
    act(web, "exclude", *chosen, address=ITEMS, confirmed="yes", reason="unclear")
    draft.refresh_from_db()
    assert draft.active_count == 7
    assert set(draft.items.filter(excluded=True).values_list("note", flat=True)) == {"unclear"}
    act(web, "include", *chosen, address=ITEMS, confirmed="yes")
    draft.refresh_from_db()
    assert draft.active_count == 9
    assert draft.history.filter(aspect__in=["excluded", "included"]).count() == 2


def test_items_of_an_approved_dataset_are_shown_not_edited(web, draft):
    item = draft.items.first()
    address = reverse("admin:datasets_app_item_change", args=[item.pk])
    fields = {"input": "Better?", "target": item.target, "grading_scheme": "", "category": item.category}
    inline = {
        "norms-TOTAL_FORMS": 1,
        "norms-INITIAL_FORMS": 1,
        "norms-0-id": item.norms.get().pk,
        "norms-0-item": item.pk,
    }
    web.post(address, fields | inline)
    item.refresh_from_db()
    assert item.input == "Better?"
    assert draft.history.first().to_value == "edited k0: input"
    draft.approve(by="a test", reason="ok")
    assert web.get(address).status_code == 200
    assert web.post(address, fields | inline | {"input": "Worse?"}).status_code == 403
    act(web, "exclude", item, address=ITEMS, confirmed="yes", reason="x")
    item.refresh_from_db()
    assert (item.input, item.excluded) == ("Better?", False)


@pytest.mark.slow
def test_lists_need_a_constant_number_of_queries(web, draft, django_assert_max_num_queries):
    for number in range(30):
        factories.make_dataset(f"more-{number}", created_by=factories.make_user(f"person-{number}"))
    with django_assert_max_num_queries(16):
        assert web.get(reverse(LIST)).status_code == 200
    with django_assert_max_num_queries(16):
        assert web.get(reverse(ITEMS)).status_code == 200
    assert Item.objects.count() > 90


def test_items_are_shown_with_their_images(web):
    reading = read_items(build_archive({"cat.jpg": build_picture()}))
    item = create_dataset(reading, slug="cats", by="a test").items.get()
    for address in (reverse(ITEMS), reverse("admin:datasets_app_item_change", args=[item.pk])):
        page = web.get(address).content.decode()
        assert f'src="{item.image.thumbnail_url}"' in page
    assert web.get(item.image.thumbnail_url).status_code == 200
