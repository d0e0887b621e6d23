"""The design form folds prompts that no item of the chosen dataset can fill, and says why."""

import pytest
from django.test import Client

from evalsite.lib import permissions
from runs_app.models import Prompt
from runs_app.planning.shipped_designs import create_shipped_designs
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def researcher():
    create_shipped_designs()
    client = Client()
    client.force_login(factories.make_user("researcher", permissions.RESEARCHER))
    return client


def ask(client, dataset, *ticked):
    fields = {"dataset": dataset.pk, "prompts": [prompt.pk for prompt in ticked]}
    return client.post("/experiments/new/choices/prompts/", fields).content.decode()


def split_groups(page):
    fitting, _, folded = page.partition("<details")
    return fitting, folded


def test_prompts_for_parametric_tasks_are_folded_for_a_dataset_of_questions(researcher):
    fitting, folded = split_groups(ask(researcher, factories.make_dataset("capitals", 3)))
    assert "plain@1" in fitting
    assert "answer-line@1" in fitting
    assert "8 prompts that this dataset cannot fill" in folded
    assert "no item has {{meta.instruction}}" in folded
    assert "zeroshot@1" in folded
    assert "no item has {{image}}" in folded


def test_a_prompt_with_a_value_for_some_items_is_not_folded(researcher):
    rows = [{"key": "a", "input": "A?"}, {"key": "b", "input": "B?", "metadata": {"hint": "Think of rivers."}}]
    dataset = factories.make_dataset("mixed", rows)
    factories.make_prompt("hinted", user="{{input}} {{meta.hint}}")
    fitting, _ = split_groups(ask(researcher, dataset))
    assert "hinted@1" in fitting


def test_a_ticked_prompt_stays_visible_with_its_reason(researcher):
    prompt = Prompt.objects.get(name="zeroshot")
    fitting, _ = split_groups(ask(researcher, factories.make_dataset("capitals", 3), prompt))
    assert "zeroshot@1" in fitting
    assert "no item has {{meta.instruction}}" in fitting


def test_without_a_dataset_no_prompt_is_folded(researcher):
    page = researcher.get("/experiments/new/").content.decode()
    assert "zeroshot@1" in page
    assert "cannot fill" not in page


def test_the_number_of_queries_does_not_depend_on_the_number_of_prompts(researcher, django_assert_max_num_queries):
    dataset = factories.make_dataset("capitals", 3)
    for number in range(12):
        factories.make_prompt(f"more{number}", user=f"{{{{input}}}} {{{{meta.column{number}}}}}")
    with django_assert_max_num_queries(24):
        ask(researcher, dataset)
