"""axe has no finding of any impact on any page."""

import pytest
from PIL import Image

from grading_app.publish.report.build import build_document
from grading_app.publish.report.files import write_report
from tests.factories.studies import make_rated_study
from tests.integration.pages.conftest import make_lab, make_people
from tests.integration.pages.page_visits import READERS, make_visits, make_visits_of_finished_studies
from tests.system.browser.page_checks import LAPTOP, PHONE, find_all_faults, show


@pytest.fixture
def world(transactional_db, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    lab = make_lab(make_people())
    image = lab.draft.items.first().image
    for path in (image.file, image.shared_thumbnail.path):
        Image.new("RGB", (4, 3), "teal").save(path, "PNG")
    return lab


@pytest.mark.slow
def test_axe_finds_nothing_on_any_page(world, visitor, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    pages = {person: visitor(world.people[person] if person else None) for person in (*READERS, None)}
    faults = {}
    for visit in [*make_visits(world), *make_visits_of_finished_studies(world)]:
        page = pages[visit.person]
        assert page.goto(visit.address).ok, visit
        for viewport in (LAPTOP, PHONE):
            for scheme in ("light", "dark"):
                show(page, viewport, scheme)
                if found := find_all_faults(page):
                    faults[visit.name, visit.address, viewport["width"], scheme] = found
    assert faults == {}


@pytest.mark.slow
def test_axe_finds_nothing_in_the_html_file_of_a_report(transactional_db, visitor):
    document = build_document(make_rated_study())
    page = visitor()
    page.set_content(write_report(document, "html").decode())
    for viewport in (LAPTOP, PHONE):
        page.set_viewport_size(viewport)
        assert find_all_faults(page) == []
