"""The lists and pages of the library: versions, their states, differences, approval and archive."""

import pytest
from django.urls import reverse

from runs_app.models import Prompt
from tests import factories
from tests.factories.drafts import make_question_prompt
from tests.factories.judges import make_grader, make_starter_rubric

pytestmark = pytest.mark.django_db
KINDS = ("prompts", "samplers", "dimensions", "rubrics")


def get_page(web, kind, name, query=""):
    return web.get(reverse("library_page", args=[kind, name]) + query)


def post_act(web, kind, name, version, verb, reason="Read"):
    return web.post(reverse("library_act", args=[kind, name, version, verb]), {"reason": reason}, follow=True)


@pytest.fixture
def definitions(db):
    return {
        "prompts": make_question_prompt("usual", status="draft"),
        "samplers": factories.make_sampler("usual", status="draft"),
        "dimensions": factories.make_dimension("usual", status="draft"),
        "rubrics": make_starter_rubric(name="usual", status="draft"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_curator_approves_and_archives_and_a_researcher_does_not(as_user, researcher, curator, definitions, kind):
    row = definitions[kind]
    assert post_act(as_user(researcher), kind, "usual", 1, "approve").status_code == 404
    assert "Enter a reason" in post_act(as_user(curator), kind, "usual", 1, "approve", "").content.decode()
    row.refresh_from_db()
    assert row.status == "draft"
    assert "usual@1 is approved" in post_act(as_user(curator), kind, "usual", 1, "approve").content.decode()
    assert "only its author or a curator" in post_act(as_user(researcher), kind, "usual", 1, "archive").content.decode()
    post_act(as_user(curator), kind, "usual", 1, "archive")
    row.refresh_from_db()
    assert row.status == "archived"
    assert "usual" not in as_user(curator).get(reverse("library_list", args=[kind])).content.decode()
    assert "usual" in as_user(curator).get(reverse("library_list", args=[kind]) + "?archived=on").content.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_each_list_and_page_opens_with_its_state(as_user, researcher, definitions, kind):
    web = as_user(researcher)
    text = web.get(reverse("library_list", args=[kind])).content.decode()
    assert "usual" in text
    assert "Draft" in text
    assert "No version is approved. Write usual@1" in get_page(web, kind, "usual").content.decode()


def test_a_page_shows_the_meant_version_and_two_versions_side_by_side(as_user, researcher):
    make_question_prompt("plain")
    newer = make_question_prompt("plain", version=2, status="draft", messages=[{"role": "user", "content": "{{key}}"}])
    web = as_user(researcher)
    page = get_page(web, "prompts", "plain")
    assert str(page.context["row"]) == "plain@1"
    page = get_page(web, "prompts", "plain", "?version=2")
    assert (page.context["row"], str(page.context["before"])) == (newer, "plain@1")
    text = page.content.decode()
    assert "New designs use" in text
    assert "<ins" in text
    for query in ("?version=9", "?version=x", "?version=1&with=7"):
        assert get_page(web, "prompts", "plain", query).status_code == 404


def test_unknown_kinds_names_and_verbs_are_not_found(as_user, curator, definitions):
    web = as_user(curator)
    for address in (
        "/library/poems/",
        "/library/prompts/nothing/",
        "/library/new/poems/",
        "/library/new/prompts/?from=x",
    ):
        assert web.get(address).status_code == 404
    assert post_act(web, "prompts", "usual", 1, "delete").status_code == 404
    assert web.post("/library/new/samplers/try/", {}).status_code == 404


def test_the_number_of_queries_does_not_grow_with_the_list(as_user, researcher, django_assert_max_num_queries):
    for number in range(30):
        make_question_prompt(f"prompt-{number}", created_by=researcher)
    web = as_user(researcher)
    with django_assert_max_num_queries(12):
        web.get(reverse("library_list", args=["prompts"]))
    assert Prompt.objects.count() == 30


def test_the_judges_are_listed_with_model_and_rubric(as_user, researcher):
    judge = make_grader("strict")
    web = as_user(researcher)
    text = web.get(reverse("judge_list")).content.decode()
    assert reverse("judge_page", args=["strict"]) in text
    assert str(judge.rubric) in text
    assert str(judge.language_model) in web.get(reverse("judge_page", args=["strict"])).content.decode()
