"""From files to a draft in two steps: the second saves all rows or none, and nothing is saved earlier."""

import os
import time
from pathlib import Path

import pytest
from django.urls import reverse

from datasets_app import pending_uploads
from datasets_app.models import Asset, Dataset, Norm
from tests import factories
from tests.factories.files import RED, build_archive, build_picture, build_upload
from tests.integration.dataset_pages.conftest import TABLE, build_address
from tests.page_text import page_text

NEW = "/datasets/new/"


@pytest.fixture(autouse=True)
def own_media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def member(as_):
    return as_("researcher")


def send(client, content=TABLE, name="items.csv", **fields):
    file = build_upload(content, name) if isinstance(content, str | bytes) else content
    return client.post(NEW, {"file": file, "slug": "set", **fields})


def build_choices(client, address, **changes):
    """Return the data that a browser would post from the current form, with some changes."""
    form = client.get(address).context["form"]
    return {**{field.html_name: field.value() for field in form}, **changes}


def find_column(client, address, name):
    return str(client.get(address).context["columns"].index(name))


def post_and_work(client, address, fields):
    """Post the form; return the final page, after the worker's task."""
    return client.post(address, fields, follow=True)


def list_waiting_folders(settings):
    return sorted(Path(settings.MEDIA_ROOT).glob("uploads/*/*"))


def test_the_first_step_shows_columns_rows_and_a_guess(member):
    response = send(member)
    text = member.get(response.url).content.decode()
    for words in ("question", "Question 4?", "items.csv", "5 columns"):
        assert words in text
    form = member.get(response.url).context["form"]
    guessed = {name: form[name].value() for name in ("column_key", "column_input", "column_target", "column_category")}
    assert guessed == {"column_key": "0", "column_input": "1", "column_target": "2", "column_category": "3"}
    assert form["expression_dims"].value() == "joy"
    assert not Dataset.objects.exists()


def test_the_second_step_imports_everything(member, settings):
    address = send(member, title="A set", source="A paper", licence="CC0").url
    response = member.post(address, build_choices(member, address), follow=True)
    dataset = Dataset.objects.get()
    assert response.redirect_chain == [(address, 302), (build_address(dataset), 302)], "texts open as a table"
    assert (dataset.item_count, dataset.title, dataset.source, dataset.licence) == (9, "A set", "A paper", "CC0")
    assert (dataset.source_name, dataset.created_by.username) == ("items.csv", "researcher")
    assert Norm.objects.count() == 9
    (folder,) = list_waiting_folders(settings)
    assert not {"items", "images", "norms"} & {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_checking_saves_nothing_and_keeps_the_upload(member):
    address = send(member).url
    text = post_and_work(member, address, {**build_choices(member, address), "check": "1"}).content.decode()
    assert "9 items can be imported" in text
    assert not Dataset.objects.exists()
    assert member.get(address).status_code == 200


def test_an_upload_is_discarded(member, settings):
    address = send(member).url
    member.post(address, {"discard": "1"})
    assert list_waiting_folders(settings) == []
    assert member.get(address).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "key", "target"),
    [
        ({"expression_key": "topic+id"}, "a:k0", "0"),
        ({"expression_key": "{topic}-{id}"}, "a-k0", "0"),
        ({"expression_target": "{question|after:n }"}, "k0", "0?"),
        ({"column_target": ""}, "k0", ""),
    ],
)
def test_a_field_is_a_column_an_expression_or_nothing(member, changes, key, target):
    address = send(member).url
    member.post(address, build_choices(member, address, **changes))
    item = Dataset.objects.get().items.first()
    assert (item.key, item.target) == (key, target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "metadata"),
    [
        ({"column_metadata": "*"}, {"answer": "0"}),
        ({"column_metadata": "-"}, {}),
        ({"expression_metadata": "topic+id"}, {"topic": "a", "id": "k0"}),
    ],
)
def test_metadata_is_all_other_columns_none_or_the_named_ones(member, changes, metadata):
    address = send(member).url
    member.post(address, build_choices(member, address, column_target="", **changes))
    assert Dataset.objects.get().items.first().metadata == metadata


@pytest.mark.slow
def test_columns_named_like_form_values_are_columns(member):
    address = send(member, "*,-,question\nstar,dash,What?\n").url
    member.post(
        address, build_choices(member, address, column_key=find_column(member, address, "*"), column_metadata="-")
    )
    item = Dataset.objects.get().items.get()
    assert (item.key, item.metadata) == ("star", {})


@pytest.mark.slow
def test_errors_come_with_their_rows_and_nothing_is_saved(member):
    address = send(member, "id,question\nq1,One?\nq1,Two?\nq3,\n").url
    text = post_and_work(member, address, build_choices(member, address)).content.decode()
    for words in ("Nothing was saved", "&#x27;q1&#x27; is the key of row 1 already", "Neither an input nor an image"):
        assert words in text
    assert not Dataset.objects.exists()
    assert member.get(address).status_code == 200, "the upload still waits for another try"


@pytest.mark.slow
def test_an_invalid_expression_is_an_error_at_its_field(member):
    address = send(member).url
    response = post_and_work(member, address, build_choices(member, address, expression_target="{answr}"))
    assert response.context["form"].errors["expression_target"] == ["No column 'answr'; did you mean 'answer'?"]
    assert not Dataset.objects.exists()


@pytest.mark.slow
def test_a_missing_input_column_is_an_error_at_the_column_with_the_choices(member):
    address = send(member, "name,colour\na,red\nb,blue\n").url
    form = post_and_work(member, address, build_choices(member, address)).context["form"]
    assert dict(form.errors) == {"column_input": ["Choose a column; the file has name, colour"]}


@pytest.mark.slow
def test_a_table_without_a_readable_row_is_not_called_a_zip_of_images(member):
    text = page_text(member.get(send(member, "id,question\na,b,c\n").url))
    assert "No row can be read. Check the file to see the error of each row." in text
    assert "A zip of images" not in text


@pytest.mark.slow
def test_a_file_of_another_kind_is_refused_before_the_mapping(member):
    text = page_text(member.get(send(member, build_upload(b"%PDF-1.4\n1 0 obj", "norms.pdf")).url))
    assert "norms.pdf cannot be read:</strong> this is a PDF document, not a table; save the table as CSV." in text
    assert "Choose other files" in text


@pytest.mark.slow
def test_warnings_are_shown_and_kept(member):
    address = send(member, "id,question,\n q1,One?,x\nq2,Two?,y\n").url
    response = member.post(address, build_choices(member, address), follow=True)
    dataset = Dataset.objects.get()
    assert response.redirect_chain[-1] == (build_address(dataset, "dataset_about"), 302)
    text = member.get(build_address(dataset, "dataset_about")).content.decode()
    assert "2 warnings in items.csv" in text
    assert "Header: column 3 has no name and is left out" in text
    change = dataset.history.get(aspect="warnings")
    assert "row 1 (line 2), key: ' q1' is read as 'q1'" in change.reason


@pytest.mark.slow
def test_images_and_norms_come_along(member):
    table = "id,file,theme\none,one.png,warm\ntwo,two.jpg,cold\n"
    images = build_archive({"deep/one.png": build_picture(RED, form="PNG"), "two.jpg": build_picture()}, "images.zip")
    norms = build_upload("id,joy_mean\none,4\ntwo,5\n", "norms.csv")
    address = send(member, table, images=images, norms=norms).url
    member.post(address, build_choices(member, address))
    dataset = Dataset.objects.get()
    assert dataset.items.exclude(image=None).count() == 2
    assert Asset.objects.count() == 2
    assert Norm.objects.filter(item__dataset=dataset).count() == 2


def test_the_form_offers_the_column_whose_values_name_the_images(member):
    images = build_archive({"one.png": build_picture(RED, form="PNG"), "two.jpg": build_picture()}, "images.zip")
    address = send(member, "id,question,Bild\na,Which?,one.png\nb,Who?,two.jpg\n", images=images).url
    assert build_choices(member, address)["column_image"] == find_column(member, address, "Bild")


@pytest.mark.slow
def test_a_zip_of_images_needs_no_table(member):
    address = send(member, build_archive({"warm/red.jpg": build_picture()}), name="").url
    assert "A zip of images without a table" in member.get(address).content.decode()
    member.post(address, build_choices(member, address))
    item = Dataset.objects.get().items.get()
    assert (item.key, item.category, item.image is None) == ("red", "warm", False)


@pytest.mark.slow
def test_an_image_column_is_not_guessed_where_there_are_no_images(member):
    address = send(member, "id,file,question\na,a.jpg,What?\n").url
    member.post(address, build_choices(member, address))
    assert Dataset.objects.get().items.get().metadata == {"file": "a.jpg"}


@pytest.mark.slow
def test_errors_in_the_norms_save_nothing_either(member):
    address = send(member, norms=build_upload("id,joy_mean\nk0,much\n", "norms.csv")).url
    text = post_and_work(member, address, build_choices(member, address)).content.decode()
    assert "&#x27;much&#x27; is not a number" in text
    assert not Dataset.objects.exists()


@pytest.mark.slow
def test_an_existing_name_becomes_the_next_version(member, draft):
    address = send(member).url
    member.post(address, build_choices(member, address))
    assert Dataset.objects.filter(slug="set").count() == 2


def test_an_upload_belongs_only_to_its_owner(member, as_):
    address = send(member).url
    assert member.get(address).status_code == 200
    for other in ("curator", "operator"):
        assert as_(other).get(address).status_code == 404
        assert as_(other).post(address, {"discard": "1"}).status_code == 404
    assert as_("researcher").get(address).status_code == 200


@pytest.mark.parametrize("token", ["0" * 32, "x", "..", "_" * 32])
def test_an_unknown_token_is_not_found(member, token):
    assert member.get(f"/datasets/new/upload/{token}/").status_code == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"slug": "..."}, "slug"),
        ({"slug": ""}, "slug"),
        ({"slug": "東京"}, "slug"),
        ({"title": "x" * 201}, "title"),
    ],
)
def test_errors_of_the_first_form_are_at_their_fields(member, fields, field):
    response = send(member, **fields)
    assert field in response.context["form"].errors
    assert not Dataset.objects.exists()


@pytest.mark.slow
def test_files_outlast_an_error_in_another_field(member, settings):
    norms = build_upload("id,joy_mean\nk0,4\n", "norms.csv")
    page = send(member, slug="...", title="A set", norms=norms)
    text = page.content.decode()
    assert "Already uploaded: <strong>items.csv, norms.csv</strong>" in text
    token = page.context["form"].previous.token
    assert f'name="upload" value="{token}"' in text
    response = member.post(NEW, {"upload": token, "slug": "Named At Last", "title": "A set"})
    assert response.url == f"{NEW}upload/{token}/"
    post_and_work(member, response.url, build_choices(member, response.url))
    dataset = Dataset.objects.get()
    assert (dataset.slug, dataset.title, dataset.item_count, dataset.source_name) == (
        "named-at-last", "A set", 9, "items.csv",
    )  # fmt: skip
    assert Norm.objects.count() >= 1


def test_a_file_that_is_chosen_again_replaces_the_one_that_was_kept(member):
    token = send(member, slug="...").context["form"].previous.token
    response = member.post(
        NEW, {"upload": token, "slug": "set", "file": build_upload("id,question\nz,New?\n", "new.csv")}
    )
    assert member.get(response.url).context["first_rows"] == [["z", "New?"]]


def test_a_kept_upload_belongs_only_to_its_owner(member, as_):
    token = send(member, slug="...").context["form"].previous.token
    page = as_("curator").post(NEW, {"upload": token, "slug": "set"})
    assert page.context["form"].errors["file"] == ["This field is required."]
    assert as_("curator").get(f"{NEW}?upload={token}").context["form"].previous is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "slug", "title"),
    [
        ("My Set (2)", "my-set-2", "My Set (2)"),
        ("Crème brûlée", "creme-brulee", "Crème brûlée"),
        ("set_1-a", "set_1-a", ""),
    ],
)
def test_the_slug_is_derived_from_the_name_that_was_typed(member, typed, slug, title):
    address = send(member, slug=typed).url
    post_and_work(member, address, build_choices(member, address))
    dataset = Dataset.objects.get()
    assert (dataset.slug, dataset.title) == (slug, title)


def test_a_file_is_needed(member):
    response = member.post(NEW, {"slug": "set"})
    assert response.context["form"].errors["file"] == ["This field is required."]


def test_the_name_of_a_file_is_never_used_as_a_path(member, settings):
    send(member, TABLE, name="../../../etc/passwd.csv")
    (folder,) = list_waiting_folders(settings)
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.json", "columns.json", "items",
    ]  # fmt: skip
    assert folder.parent.parent == Path(settings.MEDIA_ROOT) / "uploads"


def test_an_upload_is_deleted_after_a_day(member, settings):
    send(member)
    (old_folder,) = list_waiting_folders(settings)
    yesterday = time.time() - pending_uploads.UPLOAD_LIFETIME_S - 60
    os.utime(old_folder, (yesterday, yesterday))
    send(member)
    assert old_folder not in list_waiting_folders(settings)
    assert len(list_waiting_folders(settings)) == 1


@pytest.mark.slow
def test_the_number_of_uploads_per_user_is_limited(member, settings):
    for _ in range(pending_uploads.MAX_UPLOADS_PER_USER + 3):
        send(member)
    assert len(list_waiting_folders(settings)) == pending_uploads.MAX_UPLOADS_PER_USER


@pytest.mark.slow
def test_two_imports_of_one_upload_make_one_dataset(member):
    address = send(member).url
    form = build_choices(member, address)
    first, second = post_and_work(member, address, form), post_and_work(member, address, form)
    assert first.redirect_chain[-1] == second.redirect_chain[-1]
    assert Dataset.objects.count() == 1


def test_the_list_leads_to_the_upload_for_members_only(as_, db):
    factories.make_dataset("any", 1)
    assert NEW in as_("researcher").get(reverse("dataset_list")).content.decode()
    assert NEW not in as_("viewer").get(reverse("dataset_list")).content.decode()
