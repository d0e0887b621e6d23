"""Datasets, prompts, samplers and dimensions name the experiments that use them, if the reader may see these."""

import pytest
from django.urls import reverse

from evalsite.lib import permissions
from tests import factories
from tests.page_text import page_text


@pytest.fixture
def used_rows(people):
    prompt, sampler, dimension = factories.make_prompt(), factories.make_sampler("warm"), factories.make_dimension()
    dataset = factories.make_dataset("sums")
    parts = {"prompts": [prompt], "samplers": [sampler], "dimensions": [dimension], "dataset": dataset}
    factories.make_experiment("open-study", owner=people["owner"], sharing="group", **parts)
    factories.make_experiment("closed-study", owner=people["owner"], **parts)
    return {"prompt": prompt, "sampler": sampler, "dimension": dimension}, dataset


def test_a_dataset_names_the_experiments_on_it(used_rows, as_):
    address = reverse("dataset_about", args=["sums", 1])
    text = page_text(as_("researcher").get(address))
    assert "<dt>Used in</dt>" in text
    assert "open-study" in text
    assert "closed-study" not in text
    assert "closed-study" in page_text(as_("owner").get(address))


@pytest.mark.parametrize("name", ["prompt", "sampler", "dimension"])
def test_parts_of_designs_name_their_experiments(used_rows, people, client, name):
    parts, _ = used_rows
    reader = factories.make_user("reader", permissions.RESEARCHER)
    address = reverse(f"admin:runs_app_{name}_change", args=[parts[name].pk])
    client.force_login(reader)
    text = page_text(client.get(address))
    assert '<a href="/experiments/open-study/">open-study</a>' in text
    assert "closed-study" not in text
