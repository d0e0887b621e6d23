import csv

import pytest

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from tests import factories
from tests.factories.files import build_upload


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    """Use a separate media folder for each test."""
    settings.MEDIA_ROOT = tmp_path / "media"
    return settings.MEDIA_ROOT


@pytest.fixture(autouse=True)
def usual_csv_limit():
    """Restore the process-wide limits that an import with small limits sets."""
    usual = csv.field_size_limit()
    yield
    csv.field_size_limit(usual)


@pytest.fixture
def curator(db):
    user = factories.make_user("curator", "Curator")
    user.is_staff = True
    user.save()
    return user


@pytest.fixture
def draft(db):
    """Return a draft of nine imported questions in three categories, with norms."""
    rows = [f"k{n},Question {n}?,{n},{'abc'[n % 3]},{4 + n / 10}" for n in range(9)]
    table = "id,question,answer,category,joy_mean\n" + "\n".join(rows)
    return create_dataset(read_items(build_upload(table)), slug="set", by="a test")
