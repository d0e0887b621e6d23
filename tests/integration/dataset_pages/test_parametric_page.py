"""The design page of a parametric space: its preview, its errors, and the dataset that a worker builds."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from datasets_app.generators.registry import load_generators
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.parametric.spec import read_space
from datasets_app.pending_uploads import find_upload
from runs_app.views.parametric import SAMPLE, append_task
from tests import factories
from tests.factories.files import build_upload

PAGE = "/datasets/new/parametric/"
SPACE = """name: small
precision:
  low: {count: 4}
tasks:
  - name: shuffle
    params: {length: [3, 4], max_depth: [2, 3, 5]}
  - name: brackets
    mode: manifold
    manifold: {length: {range: [8, 16, 24], window: {skip: degree, body: 2}, "resample:corner": {first: 1}}}
"""


def submit(client, button, text=SPACE, **fields):
    return client.post(PAGE, {button: "1", "text": text, **fields})


def test_the_page_opens_with_a_sample_and_its_preview(as_):
    response = as_("researcher").get(reverse("parametric_new"))
    assert response.status_code == 200
    preview = response.context["preview"]
    assert [row.name for row in preview["tasks"]] == ["arithmetic", "shuffle"]
    assert [row.points for row in preview["tasks"]] == [12, 12]
    assert "my-space" in response.content.decode()
    assert read_space(SAMPLE).name == "my-space"


def test_the_preview_counts_points_and_cases_and_saves_nothing(as_):
    preview = submit(as_("researcher"), "preview").context["preview"]
    assert [(row.name, row.points, row.cases) for row in preview["tasks"]] == [("shuffle", 6, 24), ("brackets", 2, 8)]
    rows = {(row.task, row.degree): row.points for row in preview["by_density"]}
    assert rows["shuffle", "any"] == (6, 6, 6, 6)
    assert rows["brackets", "0"] == (2, 2, 2, 1)
    assert rows["brackets", "2"] == (1, 1, 1, 1)
    assert rows["brackets", "3"] == (None, None, None, None)
    (cost_map,) = preview["maps"]
    assert (cost_map.task, cost_map.x, cost_map.y) == ("shuffle", "length", "max_depth")
    assert cost_map.columns == ("3", "4")
    assert cost_map.rows == (("2", (4, 4)), ("3", (4, 4)), ("5", (4, 4)))
    assert not Dataset.objects.exists()


def test_the_map_uses_the_chosen_parameters(as_):
    (cost_map,) = submit(as_("researcher"), "preview", x="max_depth", y="length").context["preview"]["maps"]
    assert (cost_map.x, cost_map.y) == ("max_depth", "length")


def test_cases_of_a_point_are_shown_as_a_model_receives_them(as_):
    response = submit(as_("researcher"), "preview", point="2", prompt="multishot")
    preview = response.context["preview"]
    assert preview["point"].params == {"length": 3, "max_depth": 3}
    assert [turn["role"] for turn in preview["cases"][0].turns] == ["system", *["user", "assistant"] * 3, "user"]
    created = submit(as_("curator"), "build", slug="small")
    assert created.status_code == 302
    stored = Dataset.objects.get().items.filter(metadata__point=preview["point"].slug)
    assert [case.turns[-1]["content"] for case in preview["cases"]] == [item.input for item in stored]


def test_the_cost_of_chosen_models_follows_their_prices(as_):
    cheap = factories.make_model("cheap")
    dear = factories.make_model("dear", output_price=Decimal(20))
    fields = {"models": [cheap.pk, dear.pk], "answer_tokens": "1000"}
    first, second = submit(as_("researcher"), "preview", **fields).context["preview"]["costs"]
    assert first.output_tokens == 32_000
    assert first.usd == (Decimal(first.input_tokens) + 2 * 32_000) / 1_000_000
    assert second.usd - first.usd == Decimal(18 * 32_000) / 1_000_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("max_depth: [2", "max_deth: [2"), "max_deth: shuffle has no such parameter; did you mean max_depth?"),
        (("length: [3", "length: [2"), "length: input should be greater than or equal to 3, not 2"),
        (("low: {count: 4}", "low: {}"), "precision.low.count: field required"),
        (("mode: manifold", "mode: static"), "static is not supported as a mode"),
    ],
)
def test_errors_name_the_parameter_and_keep_the_text(as_, change, message):
    text = SPACE.replace(*change)
    response = submit(as_("researcher"), "build", text, slug="small")
    page = response.content.decode()
    assert message in " ".join(response.context["preview"]["problems"])
    assert change[1] in page.replace("&quot;", '"')
    assert not Dataset.objects.exists()


def test_a_name_is_needed_to_build_and_not_to_preview(as_):
    response = submit(as_("researcher"), "build")
    assert response.context["form"].errors["slug"] == ["Enter a name for the dataset."]


def test_a_worker_builds_the_dataset_with_the_choices_of_the_form(as_):
    client = as_("researcher")
    response = submit(client, "build", slug="My space", title="Mine", degree="1", density="corner", seed="7")
    dataset = Dataset.objects.get()
    assert (str(dataset), dataset.title, dataset.item_count, dataset.created_by.username) == (
        "my-space@1",
        "Mine",
        28,
        "researcher",
    )
    assert {key: dataset.recipe[key] for key in ("degree", "density", "seed")} == {
        "degree": 1, "density": "corner", "seed": 7
    }  # fmt: skip
    assert client.get(response.url).url == dataset.get_absolute_url()


def test_a_space_that_cannot_be_built_is_kept_for_a_correction(as_):
    client = as_("researcher")
    submit(client, "build", slug="small")
    response = submit(client, "build", slug="small", title="Again")
    page = client.get(response.url).content.decode()
    assert "small@1 has all of these 32 items and no others" in page
    assert "Edit the space" in page
    token = response.url.rstrip("/").rpartition("/")[2]
    edited = client.get(f"{PAGE}?upload={token}")
    assert edited.context["form"].initial["text"] == SPACE
    assert (edited.context["form"].initial["slug"], edited.context["form"].initial["title"]) == ("small", "Again")
    assert as_("curator").get(f"{PAGE}?upload={token}").context["form"].initial["text"] == SAMPLE


def test_the_progress_page_shows_how_many_cases_are_stored(as_, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *args, **kwargs: None)
    client = as_("researcher")
    response = submit(client, "build", slug="small")
    token = response.url.rstrip("/").rpartition("/")[2]
    waiting = find_upload(User.objects.get(username="researcher").pk, token)
    with waiting.job.perform():
        BackgroundJob.objects.update(step="saving", done=8, total=32)
        page = client.get(response.url).content.decode()
    assert "8 of 32 cases are stored" in page
    assert '<progress max="32" value="8"' in page


def test_the_next_version_says_how_many_items_are_common(as_):
    client = as_("researcher")
    submit(client, "build", slug="small")
    more = SPACE.replace("count: 4", "count: 6")
    assert "32 items as in small@1, 16 new." in submit(client, "preview", more, slug="small").content.decode()


def test_a_file_replaces_the_text(as_):
    response = as_("researcher").post(PAGE, {"preview": "1", "text": "", "file": build_upload(SPACE)})
    assert response.context["form"]["text"].value() == SPACE
    assert response.context["preview"]["space"].cases == 32


def test_adding_a_task_appends_its_parameters_with_their_help(as_):
    response = submit(as_("researcher"), "add", task="tables", slug="small")
    form = response.context["form"]
    assert "      rows: 6  # " in form["text"].value()
    assert form["slug"].value() == "small"
    assert response.context["preview"]["tasks"][-1].name == "tables"


@pytest.mark.parametrize("name", load_generators())
def test_every_task_can_be_added_at_its_defaults(name):
    (task,) = read_space(append_task("", name)).tasks
    ranges = {key: axis.range for key, axis in task.params.items()}
    assert ranges == {info.name: [info.default] for info in load_generators()[name].describe_params()}


def test_htmx_gets_the_preview_alone(as_):
    response = as_("researcher").post(PAGE, {"text": SPACE}, headers={"HX-Request": "true"})
    page = response.content.decode()
    assert page.lstrip().startswith('<div id="space-preview"')
    assert "<html" not in page


def test_the_list_of_datasets_leads_to_the_page(as_):
    assert PAGE in as_("researcher").get(reverse("dataset_list")).content.decode()


def test_a_file_that_is_not_a_space_is_a_field_error(as_):
    page = submit(as_("researcher"), "look", file=SimpleUploadedFile("space.yaml", b"no space at all"))
    assert page.status_code == 200
    assert page.context["form"].errors["text"]
