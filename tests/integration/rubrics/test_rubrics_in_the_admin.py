"""Rubrics in the admin: problems are reported, and approval freezes a rubric."""

import pytest
from django.urls import reverse

from evalsite.lib.text.hashing import hash_content
from grading_app.models import Rubric
from runs_app.llm.rubric_checks import STARTERS
from tests.factories.judges import make_starter_rubric

LIST, ADD = reverse("admin:grading_app_rubric_changelist"), reverse("admin:grading_app_rubric_add")


def build_address(rubric, name="change"):
    return reverse(f"admin:grading_app_rubric_{name}", args=[rubric.pk])


def build_form_data(kind="score", **fields):
    starter = STARTERS[kind]
    blank = {"name": "fair", "messages": "", "scale_min": 0, "scale_max": 1, "criteria": "", "labels": ""}
    return blank | {"kind": kind, "system": starter.system, "user": starter.user} | fields


def act(web, verb, *rows, **data):
    return web.post(LIST, {"action": verb, "_selected_action": [row.pk for row in rows]} | data, follow=True)


def list_problems(response):
    return [sentence for errors in response.context["errors"] for sentence in errors]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"user": "{{anwser}} {{answer}}"}, "Turn 2: unknown variable {{anwser}}. It may name {{answer}},"),
        ({"user": "{{input}}"}, "No turn contains {{answer}}: the judge would not see the answer."),
        ({"user": "{{answer}} {{labels}}"}, "{{labels}} has no value in a rubric of this kind."),
        ({"kind": "pairwise", "user": "{{answer}}"}, "unknown variable {{answer}}"),
        ({"scale_min": 1, "scale_max": 1}, "The scale must end above where it starts."),
        ({"kind": "criteria", "user": "{{answer}}", "system": ""}, "Must be a list of at least one criterion"),
        ({"kind": "label", "user": "{{answer}}", "system": "", "labels": "right | 1"}, "at least two labels"),
        (
            {"kind": "label", "user": "{{answer}}", "system": "", "labels": "right | 1\nRight | 0"},
            "Duplicate names: Right, right.",
        ),
        (
            {"kind": "label", "user": "{{answer}}", "system": "", "labels": "right | 1\nwrong"},
            'Label "wrong": the score must be a number from -1,000,000,000 to 1,000,000,000.',
        ),
        (
            {"kind": "label", "user": "{{answer}}", "system": "", "labels": "right | 1\nwrong | 1"},
            "All labels have the same score",
        ),
        (
            {"kind": "criteria", "user": "{{answer}}", "system": "", "criteria": "a | 1e308 | x\nb | 1e308 | y"},
            'Criterion "b": the weight must be a number above 0, at most 1,000,000,000.',
        ),
        ({"scale_max": 1e200}, "Both ends of the scale must be numbers from -1,000,000,000 to 1,000,000,000."),
        (
            {"kind": "criteria", "user": "{{answer}}", "system": "", "criteria": "true | much | says so"},
            "Line 1: the weight must be a number, not 'much'.",
        ),
        (
            {"kind": "criteria", "user": "{{answer}}", "system": "", "criteria": "true | 1 | says\0 so"},
            "The value contains a NUL character.",
        ),
        (
            {"user": "", "system": "", "messages": '[{"role": "user", "content": "{{answer}}\\ud800"}]'},
            "This is not Unicode text at character 11.",
        ),
        (
            {"kind": "criteria", "user": "{{answer}}", "system": "", "criteria": "true | 0 | says so"},
            'Criterion "true": the weight must be a number above 0, at most 1,000,000,000.',
        ),
    ],
)
def test_an_invalid_rubric_shows_its_errors_and_is_not_saved(as_user, researcher, fields, problem):
    problems = list_problems(as_user(researcher).post(ADD, build_form_data(**fields)))
    assert any(problem in sentence for sentence in problems), problems
    assert not Rubric.objects.exists()


def test_only_curators_can_approve_and_approval_freezes_the_rubric(as_user, researcher, curator):
    rubric = make_starter_rubric(status="draft")
    act(as_user(researcher), "approve", rubric, confirmed="yes", reason="me")
    rubric.refresh_from_db()
    assert rubric.status == "draft"
    response = act(as_user(curator), "approve", rubric, confirmed="yes", reason="tried\0")
    assert "Null characters are not allowed." in response.content.decode()
    act(as_user(curator), "approve", rubric, confirmed="yes", reason="tried on twenty answers")
    rubric.refresh_from_db()
    change = rubric.history.get()
    assert (rubric.status, change.by, change.reason) == ("approved", curator, "tried on twenty answers")
    page = as_user(curator).get(build_address(rubric)).content.decode()
    assert "<textarea" not in page


def test_a_rubric_with_a_problem_cannot_be_approved(as_user, curator):
    rubric = make_starter_rubric(messages=[{"role": "user", "content": "{{input}}"}], status="draft")
    page = act(as_user(curator), "approve", rubric, confirmed="yes", reason="in a hurry").content.decode()
    rubric.refresh_from_db()
    assert "cannot be approved: No turn contains {{answer}}" in page
    assert rubric.status == "draft"


def test_the_hash_depends_on_the_content_but_not_on_name_or_version(db):
    one, renamed = make_starter_rubric("one"), make_starter_rubric("two", version=3)
    assert one.content_hash == renamed.content_hash == hash_content(one.content)
    assert make_starter_rubric("three", scale_max=2).content_hash != one.content_hash
