"""Where a copy of Evalsite keeps its files and its data: a checkout, or an installed package."""

import sys
from pathlib import Path

import pytest

from evalsite.lib.ops import installation

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed_package(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "IS_INSTALLED", True)
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "site-packages" / "evalsite")
    monkeypatch.chdir(tmp_path)
    return installation.PACKAGE


def test_a_checkout_keeps_its_data_in_its_own_folder_wherever_a_command_runs(monkeypatch, tmp_path):
    monkeypatch.delenv("EVALSITE_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert installation.get_data_dir() == ROOT / "var"


def test_an_installed_package_keeps_its_data_in_the_working_directory(monkeypatch, tmp_path, installed_package):
    monkeypatch.delenv("EVALSITE_DATA_DIR", raising=False)
    assert installation.get_data_dir() == tmp_path / "var"


def test_a_setting_names_the_data_folder_of_either(monkeypatch, tmp_path, installed_package):
    monkeypatch.setenv("EVALSITE_DATA_DIR", "lab")
    assert installation.get_data_dir() == tmp_path / "lab"


def test_a_checkout_has_its_templates_and_samples_beside_the_packages():
    assert installation.get_shipped_folder("templates") == ROOT / "templates"
    assert (installation.get_shipped_folder("samples") / "norms.csv").is_file()


def test_an_installed_package_has_its_templates_and_samples_inside(installed_package):
    assert installation.get_shipped_folder("samples") == installed_package / "samples"


def test_a_module_of_an_installed_package_runs_without_the_working_directory_on_its_path(installed_package):
    assert installation.build_module_command("evalsite", "drain") == [sys.executable, "-P", "-m", "evalsite", "drain"]
