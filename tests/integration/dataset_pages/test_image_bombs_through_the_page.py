"""Image bombs that somebody uploads on the page: the worker's reader refuses each of them within its limits."""

import re

import pytest

from datasets_app.importing.limits import LIMITS
from datasets_app.models import Asset, Dataset
from tests.factories.files import build_archive, build_picture
from tests.integration.dataset_pages.test_uploading import build_choices, send
from tests.integration.datasets.test_image_bombs import DECLARED, make_gif, repeat_last_scan

pytestmark = pytest.mark.slow
BOMBS = {**DECLARED, "jpeg of many scans": repeat_last_scan(1000)}
MEMORY = 1024 * 2**20


@pytest.fixture
def tight_memory():
    """Give the reader half of its address space. A decoded picture of 16,384 x 16,384 pixels needs more."""
    usual = LIMITS.reader_memory_bytes
    assert usual > MEMORY
    object.__setattr__(LIMITS, "reader_memory_bytes", MEMORY)
    yield
    object.__setattr__(LIMITS, "reader_memory_bytes", usual)


def name_file(name):
    return f"{name.replace(' ', '-').replace(',', '')}.png"


def upload_all(client, pictures):
    """Upload these pictures in one archive beside an intact one, and import them. Return the last page."""
    files = {name_file(name): data for name, data in pictures.items()}
    address = send(client, build_archive({"intact.png": build_picture(form="PNG"), **files})).url
    assert "form" in client.get(address).context
    return client.post(address, build_choices(client, address), follow=True)


def test_no_bomb_is_decoded_and_the_page_names_each_of_them(as_, tight_memory):
    """The reader is a process of its own. It names each bomb, so it did not run out of memory on any of them."""
    page = upload_all(as_("researcher"), BOMBS).content.decode().lower()
    for name in BOMBS:
        assert re.search(rf"{re.escape(name_file(name))}[^<]*(?:pixels|no readable|scans)", page), name
    assert not Dataset.objects.exists()
    assert not Asset.objects.exists()


def test_a_long_animation_is_reduced_to_its_first_frame(as_):
    upload_all(as_("researcher"), {"animation": make_gif(5000)})
    assert Dataset.objects.get().item_count == 2
    assert {(asset.width, asset.height) for asset in Asset.objects.all()} >= {(1, 1)}
    assert max(asset.size for asset in Asset.objects.all()) < 100_000
