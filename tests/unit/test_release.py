"""The files of a release agree with each other, and with the code."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from evalsite import __version__

ROOT = Path(__file__).resolve().parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VENDORED = sorted((ROOT / "evalsite/static/vendor").iterdir())


def read_newest_section_of_the_changelog():
    heading = re.compile(r"^## (\S+), (\S+)$", re.MULTILINE)
    return heading.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")).groups()


def test_the_version_of_the_code_is_that_of_the_citation_and_of_the_newest_section_of_the_changelog():
    version, date = read_newest_section_of_the_changelog()
    assert (CITATION["version"], version) == (__version__, __version__)
    assert str(CITATION.get("date-released", "unreleased")) == date


def test_the_build_takes_the_version_from_the_code():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "evalsite/__init__.py"


def test_the_licence_is_the_same_in_every_place():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License\n\nCopyright (c) 2026 The Evalsite authors\n")
    assert PROJECT["project"]["license"] == CITATION["license"] == "MIT"
    assert {author["name"] for author in (*PROJECT["project"]["authors"], *CITATION["authors"])} == {
        "The Evalsite authors"
    }


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.name)
def test_vendored_files_have_their_licence_beside_them_and_are_listed(folder):
    listed = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert "Permission is hereby granted" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert f"`evalsite/static/vendor/{folder.name}/` | MIT |" in listed
