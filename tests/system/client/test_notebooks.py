"""Every notebook of docs/notebooks runs from its first cell to its last, and makes its figure."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.system.postgres.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.processes]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_from_token_to_figure(file, site, tmp_path, monkeypatch):
    for name, value in site.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "client"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(file, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "\n".join(str(output) for cell in notebook.cells for output in cell.get("outputs", []))
    assert "small" in shown
    assert "large" in shown
    assert (Path(tmp_path) / "scores.png").read_bytes().startswith(b"\x89PNG")
