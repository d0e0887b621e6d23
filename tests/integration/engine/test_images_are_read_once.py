"""Calls share the text of an image: its file is read and encoded once while it is among those used last."""

import base64
import json
from pathlib import Path

import pytest

from datasets_app.models import Asset
from runs_app.engine.requests import ImageCache
from runs_app.llm.calls import ImageURL
from runs_app.llm.request_templates import Template, split_messages

SHA = "ab" * 32


@pytest.fixture
def store(settings, tmp_path):
    """Return a function that stores bytes as the image with this hash."""
    settings.MEDIA_ROOT = tmp_path

    def write(sha256: str, data: bytes) -> Path:
        path = tmp_path / Asset(sha256=sha256, format="png").shared_file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def test_calls_with_an_image_share_one_text(store):
    images, path = ImageCache(), store(SHA, b"picture")
    url = images.load(SHA, "image/png")
    path.unlink()
    assert images.load(SHA, "image/png") is url
    assert url == f"data:image/png;base64,{base64.b64encode(b'picture').decode()}"


def test_the_images_used_last_stay_within_the_limit(store, monkeypatch):
    monkeypatch.setattr(ImageCache, "MAX_BYTES", 3000)
    images = ImageCache()
    paths = [store(f"{number:064x}", bytes([number]) * 900) for number in range(3)]
    first, second, _ = (images.load(f"{number:064x}", "image/png") for number in (0, 1, 0))
    images.load(f"{2:064x}", "image/png")
    for path in paths:
        path.unlink()
    assert images.load(f"{0:064x}", "image/png") is first
    with pytest.raises(FileNotFoundError):
        images.load(f"{1:064x}", "image/png")
    assert images._size <= 3000 < len(first) + len(second) + len(first)


def test_an_image_stands_in_the_body_as_json_writes_it():
    url = ImageURL.from_data(bytes(range(256)) * 5, "image/png")
    plain = f"{url}"
    assert type(plain) is str
    bodies = []
    for address in (url, plain):
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}]
        _, texts = split_messages(messages)
        bodies.append(Template("", {}, [b'{"data": "', b'"}'], [0]).fill(texts).body)
    assert bodies[0] == bodies[1]
    assert json.loads(bodies[0])["data"] == plain.partition(",")[2]
