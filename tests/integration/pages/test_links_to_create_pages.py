"""Each choice has a link to the page that creates more options, also if there are none yet."""

import pytest
from django.urls import reverse

from grading_app.models import Panel
from tests import factories
from tests.factories.judges import make_grader, make_starter_rubric

pytestmark = pytest.mark.django_db


def open_page(client, address):
    return client.get(address).content.decode()


def find_create_links(page):
    back = "next=/experiments/new/"
    addresses = [f"/library/new/{kind}/?{back}" for kind in ("prompts", "samplers", "dimensions", "judge")]
    return [f'href="{address}"' in page for address in addresses]


def test_the_experiment_form_links_to_pages_that_create_its_parts(as_):
    web = as_("researcher")
    empty = open_page(web, "/experiments/new/")
    assert all(find_create_links(empty))
    assert "New prompt…" in empty
    factories.make_experiment(dimensions=[factories.make_dimension()])
    filled = open_page(web, "/experiments/new/")
    assert all(find_create_links(filled))


def test_the_grading_forms_link_to_judges_rubrics_and_panels(as_, people):
    experiment = factories.make_experiment(owner=people["researcher"], status="active")
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda *_: "four")
    make_grader()
    make_starter_rubric("by-reference", kind="writer")
    Panel.objects.create(name="bench").graders.set([make_grader("one"), make_grader("two")])
    web = as_("researcher")
    judge = open_page(web, reverse("experiment_judge", args=[experiment.slug]))
    back = f"next={reverse('experiment_judge', args=[experiment.slug])}"
    assert f'href="/library/new/judge/?{back}"' in judge
    assert f'href="/library/new/rubrics/?{back}"' in judge
    assert 'href="/admin/grading_app/panel/add/"' in open_page(
        web, reverse("experiment_grading", args=[experiment.slug])
    )
    write = open_page(web, reverse("experiment_write", args=[experiment.slug]))
    assert 'href="/library/new/rubrics/?starter=writer"' in write
    draw = reverse("experiment_draw_judges", args=["pilot"])
    assert f'href="/library/new/rubrics/?next={draw}"' in open_page(web, draw)


def test_users_who_may_not_create_rows_see_no_link(as_, people):
    experiment = factories.make_experiment(owner=people["operator"])
    page = open_page(as_("operator"), reverse("experiment_edit", args=[experiment.slug]))
    assert "New prompt" not in page
