"""Limits of uploads: files of anonymous users and beyond the size limit are not read, whichever view is requested."""

import tempfile

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories.files import build_upload
from tests.integration.dataset_pages.conftest import TABLE

ADDRESSES = ["dataset_new", "experiment_from_file", "login"]


@pytest.fixture
def temporary_folder(settings, tmp_path, monkeypatch):
    """Return the folder to which Django writes files that are too large for its memory limit."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    settings.FILE_UPLOAD_TEMP_DIR = str(folder)
    settings.FILE_UPLOAD_MAX_MEMORY_SIZE = 10
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("name", ADDRESSES)
def test_files_of_strangers_are_not_read(db, temporary_folder, name):
    response = Client(enforce_csrf_checks=True).post(reverse(name), {"file": build_upload(TABLE), "slug": "set"})
    assert response.status_code == 403
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize("name", ["dataset_new", "experiment_from_file"])
def test_a_request_that_says_it_is_too_large_is_refused(as_, settings, temporary_folder, name):
    settings.UPLOAD_BYTES = 100
    response = as_("researcher").post(reverse(name), {"file": build_upload("x" * 200), "slug": "set"})
    assert response.status_code == 400
    assert list(temporary_folder.iterdir()) == []


def test_a_request_that_lies_about_its_size_is_refused_while_it_is_read(as_, settings, temporary_folder, monkeypatch):
    from evalsite.lib.web.uploads import BoundedUpload

    monkeypatch.setattr(BoundedUpload, "handle_raw_input", lambda *args, **kwargs: None)
    settings.UPLOAD_BYTES = 100
    response = as_("researcher").post(reverse("dataset_new"), {"file": build_upload("x" * 200), "slug": "set"})
    assert response.status_code == 400
    assert list(temporary_folder.iterdir()) == []


def test_small_requests_are_accepted(as_, temporary_folder):
    response = as_("researcher").post(reverse("dataset_new"), {"file": build_upload(TABLE), "slug": "set"})
    assert response.status_code == 302
    assert list(temporary_folder.iterdir()) == []
