"""No more is read of a request's files than is taken, and nothing from strangers, before any view is asked."""

import tempfile

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories.files import upload
from tests.integration.dataset_pages.conftest import TABLE

ADDRESSES = ["dataset_new", "experiment_from_file", "login"]


@pytest.fixture
def temporary(settings, tmp_path, monkeypatch):
    """Where Django would write files that are larger than it holds in memory."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    settings.FILE_UPLOAD_TEMP_DIR = str(folder)
    settings.FILE_UPLOAD_MAX_MEMORY_SIZE = 10
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("name", ADDRESSES)
def test_files_of_strangers_are_not_read(db, temporary, name):
    response = Client(enforce_csrf_checks=True).post(reverse(name), {"file": upload(TABLE), "slug": "set"})
    assert response.status_code == 403
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["dataset_new", "experiment_from_file"])
def test_a_request_that_says_it_is_too_large_is_refused(as_, settings, temporary, name):
    settings.UPLOAD_BYTES = 100
    response = as_("researcher").post(reverse(name), {"file": upload("x" * 200), "slug": "set"})
    assert response.status_code == 400
    assert list(temporary.iterdir()) == []


def test_a_request_that_lies_about_its_size_is_refused_while_it_is_read(as_, settings, temporary, monkeypatch):
    from evalsite.lib.web.uploads import BoundedUpload

    monkeypatch.setattr(BoundedUpload, "handle_raw_input", lambda *args, **kwargs: None)
    settings.UPLOAD_BYTES = 100
    response = as_("researcher").post(reverse("dataset_new"), {"file": upload("x" * 200), "slug": "set"})
    assert response.status_code == 400
    assert list(temporary.iterdir()) == []


def test_small_requests_are_accepted(as_, temporary):
    response = as_("researcher").post(reverse("dataset_new"), {"file": upload(TABLE), "slug": "set"})
    assert response.status_code == 302
    assert list(temporary.iterdir()) == []
