"""A design by form or by file: saved as a draft, refused with the field's name, shown with its size and cost."""

from decimal import Decimal

import pytest
from django import forms
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils.html import strip_tags
from pytest_django.asserts import assertHTMLEqual

from evalsite.lib.web.form_fields import fetch_choices
from grading_app.forms.experiments import ExperimentForm
from runs_app.bounds import BOUNDS
from runs_app.forms.fields import state_bounds
from runs_app.models import Endpoint, Experiment, LanguageModel, Run, Sampler
from runs_app.models.bounded import InRange
from tests import factories
from tests.factories.judges import make_grader
from tests.page_text import page_text

NEW = "/experiments/new/"


@pytest.fixture
def parts(people):
    return {
        "dataset": factories.make_dataset("questions", 5),
        "models": [factories.make_model("small"), factories.make_model("large")],
        "prompt": factories.make_prompt("plain"),
        "sampler": factories.make_sampler("short", max_tokens=100),
        "dimension": factories.make_dimension("valence"),
    }


@pytest.fixture
def form_data(parts):
    return {
        "slug": "first-try",
        "title": "A first try",
        "sharing": "private",
        "dataset": parts["dataset"].pk,
        "language_models": [model.pk for model in parts["models"]],
        "prompts": [parts["prompt"].pk],
        "samplers": [parts["sampler"].pk],
        "samples": 4,
        "max_concurrency": 8,
        "request_timeout_s": 30,
        "max_attempts": 2,
        "on_empty": "keep",
        "on_unreadable": "rerun",
        "max_usd": "2.50",
        "cache": "on",
    }


def test_the_form_creates_a_draft_owned_by_the_user(form_data, as_, people):
    response = as_("researcher").post(NEW, form_data)
    experiment = Experiment.objects.get(slug="first-try")
    assert response.url == f"/experiments/{experiment.slug}/"
    assert (experiment.owner, experiment.status, experiment.samples) == (people["researcher"], "draft", 4)
    assert (experiment.max_usd, experiment.on_unreadable) == (Decimal("2.5"), "rerun")
    assert experiment.language_models.count() == 2
    assert experiment.cache
    assert not experiment.cache_buster


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("slug", "", "required"),
        ("slug", "Not A Slug", "small letters"),
        ("samples", "0", "Must be between 1 and 10,000."),
        ("max_usd", "-1", "Must be between 0 and 10,000,000 US dollars."),
        ("samples", "99999999999", "Must be between 1 and 10,000."),
        ("max_usd", "1234567890123", "Must be between 0 and 10,000,000 US dollars."),
        ("max_usd", "1e400", "Must be between 0 and 10,000,000 US dollars."),
        ("max_usd", "0.00001", "Must have at most 4 decimal places."),
        ("max_usd", "Infinity", "Enter a number."),
        ("dataset", "", "required"),
        ("language_models", [], "required"),
        ("prompts", ["999999"], "not one of the available choices"),
        ("max_attempts", "21", "Must be between 1 and 20."),
        ("request_timeout_s", "nan", "Enter a number."),
        ("request_timeout_s", "1e300", "Must be between 0.1 and 3,600 seconds."),
        ("max_concurrency", "100001", "Must be between 1 and 100,000."),
        ("stop_failure_rate", "1.5", "Must be between 0 and 1."),
        ("stop_after_attempts", "0", "Must be between 1 and 1,000,000."),
        ("scorers", ["no-such-scorer"], "not one of the available choices"),
    ],
)
def test_an_error_is_at_its_field_and_nothing_is_saved(form_data, as_, field, value, message):
    response = as_("researcher").post(NEW, {**form_data, field: value})
    assert response.status_code == 200
    errors = response.context["form"].errors[field]
    assert message in " ".join(errors)
    assert len(errors) == 1
    assert f'aria-describedby="id_{field}' in response.content.decode() or field in response.content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("written", "amount"), [("2,50", "2.5"), (" 0,125 ", "0.125"), ("2.50", "2.5"), ("1250", "1250"), (",5", "0.5")]
)
def test_a_budget_has_a_decimal_point_or_comma_and_its_input_drops_neither(form_data, as_, written, amount):
    """A number input of a browser makes 250 of 2,50."""
    page = as_("researcher").get(NEW)
    for name in ("max_usd", "confirm_above_usd"):
        assert page.context["form"].fields[name].widget.input_type == "text"
    as_("researcher").post(NEW, form_data | {"max_usd": written})
    assert Experiment.objects.get().max_usd == Decimal(amount)


@pytest.mark.parametrize("written", ["1,250", "12,500", "1,250.50", "1.250,50", "2,5,0", "2,"])
def test_a_budget_with_thousands_separators_is_refused(form_data, as_, written):
    page = as_("researcher").post(NEW, form_data | {"max_usd": written})
    assert page.context["form"].errors == {
        "max_usd": ["Write the number without thousands separators, such as 1250.50."]
    }
    assert f'value="{written}"' in page.content.decode()


def test_the_limit_of_failures_is_set_on_the_page_and_has_a_default(form_data, as_):
    client = as_("researcher")
    page = client.get(NEW).content.decode()
    assert "Failure rate that stops a run" in page
    assert "with 95 % confidence" in page
    client.post(NEW, form_data | {"stop_failure_rate": "0.2", "stop_after_attempts": "50"})
    client.post(NEW, form_data | {"slug": "second-try", "stop_failure_rate": "", "stop_after_attempts": ""})
    limits = Experiment.objects.order_by("pk").values_list("stop_failure_rate", "stop_after_attempts")
    assert list(limits) == [(0.2, 50), (0.05, 20)]


def test_a_name_in_use_is_refused(form_data, as_):
    as_("researcher").post(NEW, form_data)
    response = as_("owner").post(NEW, form_data)
    assert "not available" in " ".join(response.context["form"].errors["slug"])


def test_draft_datasets_and_prompts_are_not_offered(parts, as_):
    draft = factories.make_dataset("unready", 2, approved=False)
    unread = factories.make_prompt("unread", status="draft")
    form = as_("researcher").get(NEW).context["form"]
    assert draft not in form.fields["dataset"].queryset
    assert unread not in form.fields["prompts"].queryset
    assert parts["prompt"] in form.fields["prompts"].queryset


def test_own_draft_prompts_are_offered_with_their_state_and_wait_for_a_curator(form_data, as_, people):
    own = factories.make_prompt("mine", status="draft", created_by=people["researcher"])
    assert own not in as_("owner").get(NEW).context["form"].fields["prompts"].queryset
    assert "mine@1, draft" in as_("researcher").get(f"{NEW}?prompts={own.pk}").content.decode()
    as_("researcher").post(NEW, {**form_data, "prompts": [own.pk]})
    page = as_("researcher").get("/experiments/first-try/").content.decode()
    assert "mine@1 is draft; a curator must approve it before it is used" in page


def test_the_address_ticks_what_was_just_made(parts, as_):
    form = as_("researcher").get(f"{NEW}?prompts={parts['prompt'].pk}&samplers=x").context["form"]
    assert form["prompts"].value() == [str(parts["prompt"].pk)]
    assert not form["samplers"].value()


def test_checkboxes_are_as_their_widget_renders_them(form_data, people):
    make_grader("strict")
    form = ExperimentForm(form_data | {"judges": ["strict"], "scorers": ["exact_match"]}, user=people["owner"])
    fetch_choices(form)
    for name in ("language_models", "prompts", "samplers", "scorers", "judges"):
        choices = form.group_choices(name).fitting
        assert any(choice.box.data["selected"] for choice in choices), name
        for choice in choices:
            assertHTMLEqual(choice.tag, choice.box.tag())


def test_judges_are_chosen_in_the_design(form_data, as_):
    judge = make_grader("strict")
    assert f"strict: {judge.language_model} by {judge.rubric}" in as_("researcher").get(NEW).content.decode()
    as_("researcher").post(NEW, {**form_data, "judges": ["strict"]})
    assert Experiment.objects.get().graders == ["strict"]
    page = as_("researcher").post(NEW, {**form_data, "slug": "two", "judges": ["nobody"]})
    assert "judges" in page.context["form"].errors


def test_an_example_request_stands_beside_the_choices(form_data, as_):
    page = as_("researcher").post(reverse("experiment_summary"), form_data).content.decode()
    assert "Example request" in page
    assert "plain@1 on item" in page


def test_options_of_the_execution_are_folded_with_their_defaults_in_one_line(form_data, as_):
    page = as_("researcher").get(NEW).content.decode()
    assert "calls in flight 32 per condition, priority 0" in page
    assert '<details class="disclose" id="execution">' in page
    page = as_("researcher").post(NEW, {**form_data, "max_attempts": "99"}).content.decode()
    assert '<details class="disclose" id="execution" open>' in page


def test_an_empty_site_says_where_to_create_each_part(as_):
    text = as_("researcher").get(NEW).content.decode()
    for address in ("/datasets/", "/endpoints/"):
        assert f'<a href="{address}">' in text
    for kind in ("prompts", "samplers"):
        assert f'href="/library/new/{kind}/?next=/experiments/new/"' in text


def test_an_inactive_model_is_offered_only_if_the_draft_has_it(form_data, parts, as_):
    as_("researcher").post(NEW, form_data)
    parts["models"][0].is_active = False
    parts["models"][0].save()
    offered_models = as_("researcher").get(NEW).context["form"].fields["language_models"].queryset
    models_of_draft = (
        as_("researcher").get("/experiments/first-try/edit/").context["form"].fields["language_models"].queryset
    )
    assert parts["models"][0] not in offered_models
    assert parts["models"][0] in models_of_draft


def test_the_panel_counts_the_current_choices(form_data, as_):
    response = as_("researcher").post(reverse("experiment_summary"), {**form_data, "slug": ""})
    summary = response.context["summary"]
    assert (summary.conditions, summary.items, summary.estimate.trials) == (2, 5, 40)
    assert summary.estimate.ceiling_usd > 0
    assert "Detectable effect" in response.content.decode()
    assert not Experiment.objects.exists()


def test_the_panel_waits_for_a_dataset(as_, people):
    response = as_("researcher").post(reverse("experiment_summary"), {"samples": "x"})
    assert "Choose a dataset" in response.content.decode()


def test_an_unknown_price_is_shown_and_never_counted_as_zero(form_data, parts, as_):
    unknown = factories.make_model("unpriced", input_price=None, output_price=None)
    response = as_("researcher").post(reverse("experiment_summary"), {**form_data, "language_models": [unknown.pk]})
    text = response.content.decode()
    assert response.context["summary"].estimate.ceiling_usd is None
    assert "price unknown" in text
    assert "unpriced has no price" in text


def test_calls_of_unknown_cost_are_never_shown_as_nothing_spent(lab, as_):
    LanguageModel.objects.update(input_price=None, output_price=None)
    Run.objects.update(n_unpriced=2, spent_usd=0)
    Experiment.objects.update(spent_usd=0, max_usd=None)
    launch, progress = (
        strip_tags(page_text(as_("owner").get(f"/experiments/{lab.experiment.slug}/{name}/")))
        for name in ("launch", "progress")
    )
    assert "unknown spent so far" in launch
    assert "a model has no price" in launch
    assert "no answers yet to estimate from" not in launch
    assert "$0.00 spent" not in launch
    assert "spent $0.00" not in progress


def test_size_and_cost_are_shown_without_a_script_and_without_saving(form_data, as_):
    response = as_("researcher").post(NEW, {**form_data, "look": "1"})
    assert response.context["summary"].estimate.trials == 40
    assert not Experiment.objects.exists()


def test_a_draft_is_edited_by_its_owner(form_data, as_):
    as_("researcher").post(NEW, form_data)
    response = as_("researcher").post("/experiments/first-try/edit/", {**form_data, "samples": 9, "slug": "renamed"})
    assert response.url == "/experiments/renamed/"
    assert Experiment.objects.get().samples == 9
    assert as_("owner").post("/experiments/renamed/edit/", form_data).status_code == 404


def test_after_the_launch_only_settings_unseen_by_models_can_change(lab, as_):
    address = f"/experiments/{lab.experiment.slug}/edit/"
    form = {
        "title": "New words",
        "sharing": "group",
        "samples": 3,
        "on_empty": "keep",
        "max_usd": "9",
        "dataset": "1",
        "slug": "other",
    }
    as_("owner").post(address, form)
    lab.experiment.refresh_from_db()
    assert (lab.experiment.title, lab.experiment.samples, lab.experiment.slug) == ("New words", 3, "pilot")
    response = as_("owner").post(address, {**form, "samples": 1})
    assert "Enter a higher number" in " ".join(response.context["form"].errors["samples"])


def test_a_raised_budget_shows_in_the_history(lab, as_, people):
    as_("owner").post(
        f"/experiments/{lab.experiment.slug}/edit/",
        {"samples": 4, "on_empty": "skip", "max_usd": "9"},
    )
    changes = lab.experiment.history.filter(by=people["owner"])
    assert {change.aspect: (change.from_value, change.to_value) for change in changes} == {
        "budget": ("5.0000", "9"),
        "samples": ("2", "4"),
        "empty answers": ("keep", "skip"),
    }


def test_timeout_attempts_and_waits_can_change_after_the_launch_and_an_empty_field_keeps_its_value(lab, client, people):
    client.force_login(people["owner"])
    form = {"sharing": "private", "samples": 2, "on_empty": "keep", "max_usd": "5", "reason": "It is slow"}
    address = f"/experiments/{lab.experiment.slug}/edit/"
    assert 'name="request_timeout_s"' in client.get(address).content.decode()
    client.post(address, {**form, "request_timeout_s": "9", "max_attempts": "4", "backoff_s": "3", "max_backoff_s": ""})
    lab.experiment.refresh_from_db()
    changed = lab.experiment
    assert (changed.request_timeout_s, changed.max_attempts, changed.backoff_s, changed.max_backoff_s) == (9, 4, 3, 60)
    assert set(changed.history.filter(reason="It is slow").values_list("aspect", flat=True)) == {
        "time-out", "attempts", "first retry wait",
    }  # fmt: skip


YAML = """
experiment: from-a-file
dataset: questions@1
models: [small]
prompts: [plain]
samplers: [short]
samples: 2
budget: {max_usd: 1.00}
"""


def test_a_pasted_file_makes_a_draft(parts, as_):
    response = as_("researcher").post("/experiments/new/file/", {"text": YAML})
    assert response.url == "/experiments/from-a-file/"
    assert Experiment.objects.get().samples == 2


def test_an_uploaded_file_makes_a_draft(parts, as_):
    file = SimpleUploadedFile("design.yaml", YAML.encode())
    assert as_("researcher").post("/experiments/new/file/", {"file": file}).status_code == 302
    assert Experiment.objects.get().slug == "from-a-file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YAML + "smaples: 3\n", "smaples"),
        (YAML.replace("plain", "unheard-of"), "prompts[0]"),
        ("- a list", "mapping"),
        ("{", "YAML"),
    ],
)
def test_an_invalid_file_is_refused_with_the_key(parts, as_, text, message):
    response = as_("researcher").post("/experiments/new/file/", {"text": text})
    assert response.status_code == 200
    assert message in " ".join(response.context["form"].non_field_errors())
    assert not Experiment.objects.exists()


def test_neither_or_both_are_refused(parts, as_):
    file = SimpleUploadedFile("design.yaml", YAML.encode())
    for given in ({}, {"text": YAML, "file": file}):
        response = as_("researcher").post("/experiments/new/file/", given)
        assert "Either choose a file or paste its text" in " ".join(response.context["form"].non_field_errors())


def test_a_file_that_is_not_text_is_refused(parts, as_):
    response = as_("researcher").post("/experiments/new/file/", {"file": SimpleUploadedFile("x.yaml", b"\xff\xfe\x00")})
    assert "not UTF-8 text" in " ".join(response.context["form"].errors["file"])


def test_the_downloaded_file_creates_the_same_design_again(lab, as_):
    response = as_("owner").get(f"/experiments/{lab.experiment.slug}/yaml/")
    assert response["Content-Disposition"] == 'attachment; filename="pilot.yaml"'
    second_text = response.content.decode().replace("experiment: pilot", "experiment: again")
    assert as_("owner").post("/experiments/new/file/", {"text": second_text}).url == "/experiments/again/"
    copy = Experiment.objects.get(slug="again")
    assert set(copy.prompts.all()) == set(lab.experiment.prompts.all())


def test_the_preview_equals_the_sent_messages(lab, as_):
    address = f"/experiments/{lab.experiment.slug}/preview/"
    text = as_("owner").get(address, {"item": "item-1"}).content.decode()
    assert "How much valence does this show? What is 1 plus 1?" in text
    assert "You rate." in text


def test_the_preview_of_an_unknown_item_or_prompt_is_an_error(lab, as_):
    address = f"/experiments/{lab.experiment.slug}/preview/"
    assert "The dataset has no item with this key" in as_("owner").get(address, {"item": "nobody"}).content.decode()
    assert as_("owner").get(address, {"prompt": "999999"}).status_code == 404


# --- copies, and putting away


def test_a_colleague_duplicates_a_shared_experiment_and_owns_the_copy(lab, as_, people):
    Experiment.objects.update(sharing="group")
    response = as_("researcher").post("/experiments/pilot/duplicate/", {"slug": "mine"})
    copy = Experiment.objects.get(slug="mine")
    assert response.url == "/experiments/mine/"
    assert (copy.owner, copy.status, copy.samples) == (people["researcher"], "draft", 2)
    assert as_("viewer").post("/experiments/pilot/duplicate/", {"slug": "theirs"}).status_code == 404


@pytest.mark.parametrize("slug", ["pilot", "Not A Name", ""])
def test_a_copy_needs_a_name_of_its_own(lab, as_, slug):
    response = as_("owner").post("/experiments/pilot/duplicate/", {"slug": slug})
    assert response.context["form"].errors["slug"]
    assert Experiment.objects.count() == 1


@pytest.mark.parametrize("verb", ["archive", "delete"])
def test_a_live_experiment_is_not_archived_or_deleted(lab, as_, verb):
    as_("owner").post(f"/experiments/pilot/{verb}/", {"reason": "Done with it"})
    lab.experiment.refresh_from_db()
    assert lab.experiment.status == "active"


def test_an_archived_experiment_stays_readable_and_cannot_be_launched(lab, as_):
    lab.experiment.runs.update(status="done")
    as_("owner").post("/experiments/pilot/archive/", {"reason": "Done with it"})
    lab.experiment.refresh_from_db()
    assert (lab.experiment.status, lab.experiment.history.first().reason) == ("archived", "Done with it")
    page = as_("owner").get("/experiments/pilot/").content.decode()
    assert "/launch/" not in page


def test_a_deletion_needs_a_reason_and_removes_all_rows(lab, as_):
    lab.experiment.runs.update(status="done", n_running=0)
    as_("owner").post("/experiments/pilot/delete/", {})
    assert Experiment.objects.exists()
    as_("owner").post("/experiments/pilot/delete/", {"reason": "A mistake"})
    assert not Experiment.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("model", [Experiment, LanguageModel, Endpoint, Sampler])
def test_no_number_of_a_form_states_the_limits_of_its_columns_type(model):
    columns = [field for field in model._meta.fields if any(isinstance(rule, InRange) for rule in field.validators)]
    names = [column.name for column in columns if column.editable]
    form = forms.modelform_factory(model, fields=names)(dict.fromkeys(names, "123456789012345678901234567890"))
    state_bounds(form)
    assert names
    for name in names:
        assert form.errors[name] == [f"Must be {BOUNDS[model._meta.model_name][name]}."]
