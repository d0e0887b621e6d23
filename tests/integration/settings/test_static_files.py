"""Static files are collected again when they change, with hashed names and compressed copies."""

import gzip
import json

import pytest
from django.contrib.staticfiles import finders

from runs_app.processes.site_processes import collect_static_files


@pytest.fixture
def source(settings, tmp_path):
    """A folder of static files in place of the site's own."""
    folder = tmp_path / "source"
    (folder / "site").mkdir(parents=True)
    (folder / "site" / "icon.svg").write_text("<svg></svg>")
    (folder / "site" / "page.css").write_text("a { background: url('icon.svg'); }\n" * 100)
    settings.STATICFILES_DIRS = [folder]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]
    yield folder
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]


def read_names(folder):
    return json.loads((folder / "staticfiles.json").read_text())["paths"]


def test_names_change_with_the_content_and_links_follow(source, tmp_path):
    folder = collect_static_files(tmp_path / "static")
    names = read_names(folder)
    page = folder / names["site/page.css"]
    assert names["site/page.css"] != "site/page.css"
    assert f'url("{names["site/icon.svg"].removeprefix("site/")}")' in page.read_text()
    assert gzip.decompress(page.with_name(f"{page.name}.gz").read_bytes()) == page.read_bytes()


def test_equal_files_are_collected_once_and_changed_files_again(source, tmp_path):
    first = collect_static_files(tmp_path / "static")
    made = first.stat().st_mtime_ns
    assert collect_static_files(tmp_path / "static") == first
    assert first.stat().st_mtime_ns == made
    (source / "site" / "page.css").write_text("a { color: red; }\n")
    second = collect_static_files(tmp_path / "static")
    assert [path.name for path in (tmp_path / "static").iterdir()] == [second.name] != [first.name]
    assert "red" in (second / read_names(second)["site/page.css"]).read_text()


def test_an_interrupted_collection_leaves_no_folder_that_looks_complete(source, tmp_path):
    (source / "site" / "broken.css").write_text("a { background: url('missing.svg'); }\n")
    with pytest.raises(RuntimeError, match=r"site/broken\.css"):
        collect_static_files(tmp_path / "static")
    assert list((tmp_path / "static").iterdir()) == []
