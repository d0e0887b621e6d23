"""Permissions: members curate, viewers read shared datasets, curators approve; images have those of their datasets."""

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from datasets_app.models import Dataset, Item
from datasets_app.models.datasets import CurationError
from evalsite.lib import permissions
from tests import factories
from tests.integration.dataset_pages.conftest import build_action_address, build_address, build_item_action_address

PAGES = ["dataset_detail", "dataset_table", "dataset_about"]
FORMS = ["dataset_edit", "dataset_norms", "dataset_sample"]


@pytest.fixture
def shared_experiment(draft, people):
    factories.approve(draft)
    return factories.make_experiment("open", owner=people["researcher"], dataset=draft, sharing="group")


@pytest.mark.parametrize("name", PAGES + FORMS)
def test_anonymous_users_are_redirected_to_the_login(draft, as_, name):
    response = as_(None).get(build_address(draft, name))
    assert response.status_code == 302
    assert response.url.startswith(reverse("login"))


@pytest.mark.parametrize("role", ["rater", "viewer"])
@pytest.mark.parametrize("name", PAGES + FORMS)
def test_datasets_that_are_not_shared_are_not_found(draft, as_, role, name):
    assert as_(role).get(build_address(draft, name)).status_code == 404


@pytest.mark.parametrize("name", PAGES)
def test_a_viewer_reads_the_dataset_of_a_shared_experiment(draft, shared_experiment, as_, name):
    text = as_("viewer").get(build_address(draft, name)).content.decode()
    assert "set@1" in text
    assert '<form method="post" action="/datasets' not in text


def test_a_viewer_of_a_shared_dataset_changes_nothing(draft, shared_experiment, as_):
    client = as_("viewer")
    assert client.get(reverse("dataset_new")).status_code == 404
    assert client.get(build_address(draft, "dataset_sample")).status_code == 404
    assert client.post(build_action_address(draft, "duplicate")).status_code == 404
    assert Dataset.objects.filter(slug=draft.slug).count() == 1


def test_an_item_is_found_only_under_its_own_dataset(draft, pictures, as_):
    item = pictures.items.first()
    assert as_("researcher").get(build_address(draft, "item_detail", item.pk)).status_code == 404


def test_a_researcher_is_told_that_a_curator_approves(draft, as_):
    text = as_("researcher").get(build_address(draft, "dataset_about")).content.decode()
    assert "A curator must approve this draft" in text
    assert build_action_address(draft, "approve") not in text


def test_a_curator_has_the_button(draft, as_):
    assert build_action_address(draft, "approve") in as_("curator").get(build_address(draft)).content.decode()


@pytest.mark.parametrize("verb", ["approve", "archive"])
def test_only_curators_can_approve_and_archive(draft, pictures, as_, verb):
    dataset = draft if verb == "approve" else pictures
    before = dataset.status
    assert as_("researcher").post(build_action_address(dataset, verb), {"reason": "because"}).status_code == 403
    dataset.refresh_from_db()
    assert dataset.status == before


def test_frozen_datasets_have_no_editing_forms(pictures, as_):
    assert as_("curator").get(build_address(pictures, "dataset_norms")).status_code == 404
    assert as_("researcher").get(build_address(pictures, "dataset_edit")).status_code == 404


def test_only_curators_change_the_description_of_a_frozen_dataset(pictures, as_):
    assert build_address(pictures, "dataset_edit") in as_("curator").get(build_address(pictures)).content.decode()
    assert (
        build_address(pictures, "dataset_edit") not in as_("researcher").get(build_address(pictures)).content.decode()
    )
    form_data = {"title": "Other", "description": "", "source": "", "licence": "", "reason": "because"}
    assert as_("researcher").post(build_address(pictures, "dataset_edit"), form_data).status_code == 404
    pictures.refresh_from_db()
    assert pictures.title == ""


def test_its_owner_changes_the_description_of_a_frozen_dataset_with_a_reason(pictures, as_):
    client = as_("researcher")
    Dataset.objects.filter(pk=pictures.pk).update(created_by=User.objects.get(username="researcher"))
    assert build_address(pictures, "dataset_edit") in client.get(build_address(pictures)).content.decode()
    form_data = {"title": "Other", "description": "", "source": "Own photographs, 2026", "licence": "CC0"}
    assert "reason" in client.post(build_address(pictures, "dataset_edit"), form_data).context["form"].errors
    client.post(build_address(pictures, "dataset_edit"), form_data | {"reason": "published"})
    pictures.refresh_from_db()
    assert (pictures.title, pictures.source, pictures.licence) == ("Other", "Own photographs, 2026", "CC0")


CITED = {"title": "Other", "description": "Changed", "source": "Somebody else", "licence": "None"}


def test_the_admin_changes_a_frozen_dataset_for_its_owner_and_curators_alone(pictures, as_):
    address = reverse("admin:datasets_app_dataset_change", args=[pictures.pk])
    client = as_("researcher")
    page = client.get(address).content.decode()
    assert 'name="licence"' not in page
    assert 'name="_save"' not in page
    assert 'value="duplicate"' in page
    client.post(address, {**CITED, "reason": "because"})
    pictures.refresh_from_db()
    assert {name: getattr(pictures, name) for name in CITED} == dict.fromkeys(CITED, "")
    assert as_("curator").post(address, {**CITED, "reason": "published"}).status_code == 302
    pictures.refresh_from_db()
    assert {name: getattr(pictures, name) for name in CITED} == CITED


@pytest.mark.parametrize("field", CITED)
def test_the_rule_itself_refuses_another_user(pictures, field):
    other = factories.make_user("other", permissions.RESEARCHER)
    with pytest.raises(CurationError, match=f"only its owner or a curator can change its {field}"):
        pictures.change_description({field: "x"}, by=other, reason="because")
    assert pictures.change_description({field: "x"}, by="command line", reason="because") == [field]


def test_frozen_datasets_offer_only_a_duplicate(pictures, as_):
    client = as_("curator")
    item = pictures.items.first()
    pages = [build_address(pictures, name) for name in PAGES] + [build_address(pictures, "item_detail", item.pk)]
    text = "".join(client.get(page).content.decode() for page in pages)
    for verb in ("approve", "delete", "reshuffle"):
        assert build_action_address(pictures, verb) not in text
    for verb in ("exclude", "include", "replace"):
        assert build_item_action_address(item, verb) not in text
    assert "note-dialog" not in text
    assert build_action_address(pictures, "duplicate") in text


@pytest.mark.parametrize("verb", ["exclude", "include", "replace"])
def test_frozen_datasets_refuse_posted_changes(pictures, as_, verb):
    item = pictures.items.first()
    response = as_("curator").post(build_item_action_address(item, verb), {"reason": "because"}, follow=True)
    assert "only a draft can change" in response.content.decode() or "was not drawn" in response.content.decode()
    item.refresh_from_db()
    assert not item.excluded


@pytest.mark.parametrize("name", ["asset", "thumbnail"])
def test_an_image_is_visible_with_a_dataset_that_contains_it(pictures, as_, people, name):
    address = reverse(name, args=[pictures.items.first().image_id])
    expected = {"researcher": 200, "curator": 200, "operator": 200, "viewer": 404, "rater": 404}
    assert {role: as_(role).get(address).status_code for role in expected} == expected
    assert as_(None).get(address).status_code == 302
    factories.make_experiment("open", owner=people["researcher"], dataset=pictures, sharing="group")
    assert as_("viewer").get(address).status_code == 200
    assert as_("rater").get(address).status_code == 404


def test_an_image_without_a_dataset_is_not_found(pictures, as_):
    address = reverse("asset", args=[pictures.items.first().image_id])
    assert as_("curator").get(address).status_code == 200
    draft = factories.make_dataset("other", 1, approved=False)
    sha256 = "ab" * 32
    from datasets_app.models import Asset

    Asset.objects.create(sha256=sha256, format="png", width=1, height=1, size=1)
    assert as_("curator").get(reverse("asset", args=[sha256])).status_code == 404
    Item.objects.filter(dataset=draft).update(image=sha256)
    assert as_("curator").get(reverse("asset", args=[sha256])).status_code == 404, "its file is missing"
