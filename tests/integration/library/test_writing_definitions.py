"""The editor of the library: drafts, new versions, problems at their field, and the way back to a design."""

import pytest
from django.urls import reverse

from grading_app.models import Grader, Rubric
from runs_app.models import Dimension, Preflight, Prompt, Sampler
from tests import factories
from tests.factories.drafts import make_draft_sampler, make_question_prompt

pytestmark = pytest.mark.django_db
NEW = reverse("library_new", args=["prompts"])


def build_form_data(**fields):
    return {"name": "fresh", "answer_format": "text", "system": "", "user": "{{input}}", "messages": ""} | fields


def test_a_researcher_saves_a_draft_and_stays_in_the_library(as_user, researcher):
    response = as_user(researcher).post(NEW, build_form_data())
    prompt = Prompt.objects.get()
    assert (prompt.status, prompt.version, prompt.created_by) == ("draft", 1, researcher)
    assert response.url == reverse("library_page", args=["prompts", "fresh"]) + "?version=1"
    assert "fresh@1" in as_user(researcher).get(response.url).content.decode()


def test_a_wrong_variable_is_named_with_its_line_at_its_field_and_nothing_is_lost(as_user, researcher):
    text = "Question:\n{{inptu}}\n"
    page = as_user(researcher).post(NEW, build_form_data(system="Be brief.", user=text))
    form = page.context["form"]
    assert list(form.errors) == ["user"]
    assert "Turn 2, line 2: unknown variable {{inptu}}." in form.errors["user"][0]
    assert text in page.content.decode()
    assert "Be brief." in page.content.decode()
    assert not Prompt.objects.exists()
    page = as_user(researcher).post(NEW, build_form_data(system="Be {{brief}}.", user="{{input}}"))
    assert list(page.context["form"].errors) == ["system"]


def test_only_those_who_may_approve_are_offered_it_and_need_a_reason(as_user, researcher, curator):
    assert "Save and approve" not in as_user(researcher).get(NEW).content.decode()
    as_user(researcher).post(NEW, build_form_data(do="approve", reason="Mine"))
    assert Prompt.objects.get().status == "draft"
    page = as_user(curator).post(NEW, build_form_data(name="other", do="approve"))
    assert "Enter a reason for the approval." in page.content.decode()
    as_user(curator).post(NEW, build_form_data(name="other", do="approve", reason="Read twice"))
    prompt = Prompt.objects.get(name="other")
    assert (prompt.status, prompt.history.get().reason) == ("approved", "Read twice")


def test_a_taken_name_is_refused_and_a_new_version_keeps_the_name(as_user, researcher):
    first = make_question_prompt("plain")
    page = as_user(researcher).post(NEW, build_form_data(name="plain"))
    assert "There is a prompt plain." in page.context["form"].errors["name"][0]
    address = f"{NEW}?from={first.pk}"
    assert "Answer the question." in as_user(researcher).get(address).content.decode()
    as_user(researcher).post(address, build_form_data(name="hijack", user="{{key}}"))
    second = Prompt.objects.get(version=2)
    assert (second.name, second.status, second.messages[-1]["content"]) == ("plain", "draft", "{{key}}")


def test_a_draft_is_edited_by_its_author_or_a_curator_and_an_approved_version_by_nobody(as_user, researcher, curator):
    draft = make_draft_sampler("warm", created_by=researcher)
    address = reverse("library_edit", args=["samplers", "warm", 1])
    other = factories.make_user("other", "Researcher")
    assert as_user(other).get(address).status_code == 404
    assert as_user(other).post(address, {"temperature": 2}).status_code == 404
    for person, temperature in ((researcher, 1), (curator, 0.5)):
        as_user(person).post(address, {"temperature": temperature, "extra": ""})
        draft.refresh_from_db()
        assert draft.temperature == temperature
    draft.approve(by=curator, reason="Read")
    assert as_user(curator).get(address).status_code == 404


@pytest.mark.parametrize(
    ("kind", "fields", "content"),
    [
        ("samplers", {"name": "s", "temperature": "0"}, {"temperature": 0}),
        (
            "dimensions",
            {"name": "d", "instructions": "How warm?", "scale_min": 1, "scale_max": 3, "labels": "1 = Cold\n3 = Hot"},
            {"name": "d", "instructions": "How warm?", "min": 1, "max": 3, "labels": {"1": "Cold", "3": "Hot"}},
        ),
    ],
)
def test_samplers_and_dimensions_are_written_in_plain_fields(as_user, researcher, kind, fields, content):
    as_user(researcher).post(reverse("library_new", args=[kind]), fields)
    assert {"samplers": Sampler, "dimensions": Dimension}[kind].objects.get().content == content


def test_a_label_without_a_point_is_reported_with_its_line(as_user, researcher):
    fields = {"name": "d", "instructions": "x", "scale_min": 1, "scale_max": 3, "labels": "1 = Cold\nHot"}
    page = as_user(researcher).post(reverse("library_new", args=["dimensions"]), fields)
    assert page.context["form"].errors["labels"] == ["Line 2: write a point, = and its label, such as 1 = Very low."]


def test_the_way_back_ticks_the_new_row_and_leads_to_no_other_site(as_user, researcher):
    response = as_user(researcher).post(NEW, build_form_data(next="/experiments/new/?dataset=3"))
    assert response.url == f"/experiments/new/?dataset=3&prompts={Prompt.objects.get().pk}"
    response = as_user(researcher).post(NEW, build_form_data(name="two", next="https://example.org/"))
    assert response.url.startswith("/library/prompts/two/")
    for number, relative in enumerate(("None", "²", "experiments/new/")):
        response = as_user(researcher).post(NEW, build_form_data(name=f"relative-{number}", next=relative))
        assert response.url.startswith(f"/library/prompts/relative-{number}/")


def test_a_dialog_is_told_which_row_was_made(as_user, researcher):
    response = as_user(researcher).post(NEW, build_form_data(), headers={"HX-Request": "true"})
    assert response.status_code == 204
    assert f'"value": "{Prompt.objects.get().pk}"' in response["HX-Trigger"]
    page = as_user(researcher).post(NEW, build_form_data(name="two", user=""), headers={"HX-Request": "true"})
    assert "Enter a user text." in page.content.decode()
    assert "<html" not in page.content.decode()


def test_the_preview_shows_the_request_for_an_item_and_its_variables(as_user, researcher):
    dataset = factories.make_dataset(
        "capitals", [{"key": "q1", "input": "Capital of France?", "metadata": {"hint": "P"}}]
    )
    address = reverse("library_preview", args=["prompts"])
    data = build_form_data(user="Answer: {{input}}", dataset=dataset.pk)
    page = as_user(researcher).post(address, data, headers={"HX-Request": "true"}).content.decode()
    assert "Answer: Capital of France?" in page
    assert 'data-insert="{{meta.hint}}"' in page
    page = as_user(researcher).post(address, data | {"user": "{{meta.nothing}}"}).content.decode()
    assert "{{meta.nothing}} has no value for this item. The items have {{input}}, {{meta.hint}}." in page
    page = as_user(researcher).post(address, data | {"item": "q9"}).content.decode()
    assert "The dataset has no item with this key." in page


def test_a_try_says_its_cost_before_and_its_reading_after(as_user, researcher, django_capture_on_commit_callbacks):
    dataset = factories.make_dataset("capitals", [{"key": "q1", "input": "Capital of France?", "target": "Paris"}])
    model = factories.make_model("small")
    data = build_form_data(dataset=dataset.pk, model=model.pk)
    web = as_user(researcher)
    page = web.post(reverse("library_preview", args=["prompts"]), data).content.decode()
    assert "One call of small" in page
    assert "costs at most" in page
    page = web.post(reverse("library_try", args=["prompts"]), data | {"model": ""}).content.decode()
    assert "Choose a model to try." in page
    web.post(reverse("library_try", args=["prompts"]), data)
    call = Preflight.objects.get()
    assert (call.about, call.messages) == ("capitals@1: q1", [{"role": "user", "content": "Capital of France?"}])
    assert call.parameters == {"max_tokens": 2048}
    Preflight.objects.filter(pk=call.pk).update(status="running", lease_until=call.lease_until)
    Preflight.objects.filter(pk=call.pk).update(status="ok", answer="Paris", latency_ms=5, cost_usd=0)
    page = web.post(reverse("library_try", args=["prompts"]), data | {"call": call.pk}).content.decode()
    assert "Paris" in page
    assert "score 1" in page
    other = factories.make_user("other", "Researcher")
    assert as_user(other).post(reverse("library_try", args=["prompts"]), data | {"call": call.pk}).status_code == 404


def test_a_new_judge_is_a_model_with_a_rubric_written_on_the_same_page(as_user, researcher, curator):
    model = factories.make_model("judging-model")
    data = {
        "name": "strict", "language_model": model.pk, "rubric": "", "on_empty": "skip", "kind": "score",
        "system": "", "user": "{{input}} {{answer}} {{target}}", "messages": "", "scale_min": 0, "scale_max": 1,
        "criteria": "", "labels": "",
    }  # fmt: skip
    page = as_user(researcher).post(reverse("judge_new"), data | {"user": "{{anwser}}"}).content.decode()
    assert "unknown variable {{anwser}}" in page
    assert not Rubric.objects.exists()
    as_user(researcher).post(reverse("judge_new"), data)
    judge = Grader.objects.get()
    assert (str(judge.rubric), judge.rubric.status, judge.sampler.temperature) == ("strict@1", "draft", 0)
    assert "A curator must approve it" in as_user(researcher).get("/library/judges/strict/").content.decode()
    as_user(curator).post(reverse("judge_new"), data | {"name": "fair", "do": "approve", "reason": "Read"})
    assert Grader.objects.get(name="fair").rubric.status == "approved"
    page = as_user(curator).post(reverse("judge_archive", args=["strict"]), {"reason": "Unused"})
    judge.refresh_from_db()
    assert judge.archived_at is not None
