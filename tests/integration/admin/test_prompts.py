"""Prompts in the admin: written as drafts, approved with a reason, then frozen."""

import json

import pytest
from django.db import IntegrityError, transaction
from django.urls import reverse

from runs_app.models import Prompt
from tests.factories.drafts import QUESTION, make_question_prompt

LIST, ADD = reverse("admin:runs_app_prompt_changelist"), reverse("admin:runs_app_prompt_add")


def build_change_address(prompt):
    return reverse("admin:runs_app_prompt_change", args=[prompt.pk])


def build_form_data(**fields):
    return {"name": "plain", "answer_format": "text", "system": "", "user": "", "messages": ""} | fields


def act(web, verb, *rows, **data):
    chosen = {"action": verb, "_selected_action": [row.pk for row in rows]}
    return web.post(LIST, chosen | data, follow=True)


def list_problems(response):
    return [sentence for errors in response.context["errors"] for sentence in errors]


def test_a_system_and_a_user_text_become_turns(as_user, researcher):
    as_user(researcher).post(ADD, build_form_data(system="Be brief.", user="\r\n{{input}}\r\n{{choices}}\r\n"))
    prompt = Prompt.objects.get()
    assert prompt.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{{input}}\n{{choices}}"},
    ]
    assert (prompt.status, prompt.version, prompt.created_by) == ("draft", 1, researcher)


def test_a_longer_conversation_is_written_as_turns(as_user, researcher):
    turns = [{"role": role, "content": "{{input}}"} for role in ("user", "assistant", "user")]
    as_user(researcher).post(ADD, build_form_data(messages=json.dumps(turns)))
    assert Prompt.objects.get().messages == turns


def test_an_existing_name_creates_the_next_version(as_user, researcher):
    make_question_prompt("plain")
    as_user(researcher).post(ADD, build_form_data(user="{{key}}"))
    assert Prompt.objects.get(version=2).messages[0]["content"] == "{{key}}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"user": "{{target}}"}, "Turn 1: {{target}} would show the model the right answer."),
        (
            {"user": "{{inptu}}"},
            "unknown variable {{inptu}}. It may name {{input}}, {{choices}}, {{key}}, {{category}}, {{meta.NAME}}, ",
        ),
        ({"user": "x", "messages": json.dumps(QUESTION)}, "Enter either a system and a user text or all turns"),
        ({}, "Enter a user text."),
        ({"messages": '{"role": "user"}'}, "A prompt is a list of at least one turn."),
        ({"messages": "["}, "Enter a valid JSON."),
        ({"system": "only this"}, "The last turn must be a user turn: the model answers it."),
    ],
)
def test_problems_of_a_prompt_are_reported_and_nothing_is_saved(as_user, researcher, fields, problem):
    problems = list_problems(as_user(researcher).post(ADD, build_form_data(**fields)))
    assert any(problem in sentence for sentence in problems)
    assert not Prompt.objects.exists()


def test_a_problem_is_reported_at_its_field(as_user, researcher):
    web = as_user(researcher)
    texts = web.post(ADD, build_form_data(user="{{target}}")).context["adminform"].form
    turns = (
        web.post(ADD, build_form_data(messages='[{"role": "user", "content": "{{target}}"}]')).context["adminform"].form
    )
    assert (list(texts.errors), list(turns.errors)) == (["user"], ["messages"])


def test_a_draft_can_be_edited_and_its_name_cannot(as_user, researcher):
    prompt = make_question_prompt(status="draft")
    as_user(researcher).post(build_change_address(prompt), build_form_data(name="other", user="{{key}}"))
    prompt.refresh_from_db()
    assert (prompt.name, prompt.messages[-1]["content"]) == ("plain", "{{key}}")


def test_the_page_of_a_draft_shows_its_texts_to_be_edited(as_user, researcher):
    form = as_user(researcher).get(build_change_address(make_question_prompt(status="draft"))).context["adminform"].form
    assert (form["system"].value(), form["user"].value()) == ("Answer the question.", "{{input}}")
    assert "{{input}}" not in str(form["messages"])


def test_an_approved_prompt_takes_no_edit(as_user, curator):
    prompt = make_question_prompt()
    page = as_user(curator).get(build_change_address(prompt)).content.decode()
    as_user(curator).post(build_change_address(prompt), build_form_data(user="{{key}}"))
    prompt.refresh_from_db()
    assert prompt.messages == QUESTION
    assert "<textarea" not in page
    with pytest.raises(IntegrityError), transaction.atomic():
        Prompt.objects.filter(pk=prompt.pk).update(messages=[])


def test_approval_asks_for_a_reason_and_stores_it(as_user, curator):
    prompt, web = make_question_prompt(status="draft"), as_user(curator)
    assert "Approve: reason" in act(web, "approve", prompt).content.decode()
    assert "Enter a reason" in act(web, "approve", prompt, confirmed="yes").content.decode()
    prompt.refresh_from_db()
    assert prompt.status == "draft"
    act(web, "approve", prompt, confirmed="yes", reason="read aloud twice")
    prompt.refresh_from_db()
    change = prompt.history.get()
    assert (prompt.status, change.by, change.reason) == ("approved", curator, "read aloud twice")
    assert "read aloud twice" in web.get(build_change_address(prompt)).content.decode()


def test_the_button_of_a_page_asks_for_the_reason_too(as_user, curator):
    prompt = make_question_prompt(status="draft")
    page = as_user(curator).post(build_change_address(prompt), build_form_data(user="{{input}}", _row_action="approve"))
    assert "Approve: reason" in page.content.decode()


def test_a_researcher_cannot_approve_or_archive(as_user, researcher):
    prompt = make_question_prompt(status="draft")
    for verb in ("approve", "archive"):
        act(as_user(researcher), verb, prompt, confirmed="yes", reason="me")
    prompt.refresh_from_db()
    assert prompt.status == "draft"
    assert not prompt.history.exists()


def test_a_prompt_with_a_problem_is_not_approved(as_user, curator):
    prompt = make_question_prompt(messages=[{"role": "user", "content": "{{target}}"}], status="draft")
    page = act(as_user(curator), "approve", prompt, confirmed="yes", reason="in a hurry").content.decode()
    assert "cannot be approved" in page
    prompt.refresh_from_db()
    assert prompt.status == "draft"


def test_archive_withdraws_an_approved_prompt(as_user, curator):
    prompt = make_question_prompt()
    act(as_user(curator), "archive", prompt, confirmed="yes", reason="superseded")
    prompt.refresh_from_db()
    assert prompt.status == "archived"


def test_a_new_version_is_a_draft_of_the_same_content(as_user, researcher):
    prompt = make_question_prompt()
    act(as_user(researcher), "new_version", prompt, confirmed="yes")
    copy = Prompt.objects.get(version=2)
    assert (copy.name, copy.status, copy.messages) == ("plain", "draft", prompt.messages)
    assert (copy.created_by, copy.content_hash) == (researcher, prompt.content_hash)


def test_only_a_draft_can_be_deleted(as_user, curator):
    draft, approved = make_question_prompt(status="draft"), make_question_prompt("other")
    for prompt in (draft, approved):
        as_user(curator).post(reverse("admin:runs_app_prompt_delete", args=[prompt.pk]), {"post": "yes"})
    assert list(Prompt.objects.all()) == [approved]
