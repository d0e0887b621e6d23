"""Surface files: figures in print style, and tables by command."""

import csv
import io
import json
import re

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from grading_app.models import CachedAggregate
from grading_app.tasks import compute_aggregates
from tests.factories.spaces import make_space_experiment
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def study():
    return make_space_experiment()


def write_surface(tmp_path, *options):
    out = tmp_path / "out"
    call_command("surface", "space", "--out", str(out), *options)
    return out.read_text()


def test_the_command_writes_each_cell_with_its_counts_and_interval(study, tmp_path):
    rows = list(csv.DictReader(io.StringIO(write_surface(tmp_path, "--task", "swaps"))))
    assert len(rows) == 8  # Two conditions, two values of each of two parameters.
    assert {"condition", "length", "max_depth", "accuracy", "interval_low", "interval_high", "n", "correct",
            "truncated"} <= set(rows[0])  # fmt: skip
    for row in rows:
        assert int(row["n"]) + int(row["truncated"]) == 4
        assert 0 <= int(row["correct"]) <= int(row["n"])
        low, middle, high = (float(row[name]) for name in ("interval_low", "accuracy", "interval_high"))
        assert low <= middle <= high + 1e-9


def test_the_command_accepts_the_selections_of_the_explorer(study, tmp_path):
    content = json.loads(
        write_surface(
            tmp_path,
            "--view",
            "map",
            "--task",
            "brackets",
            "--x",
            "length",
            "--y",
            "kinds",
            "--at",
            "max_depth=2",
            "--format",
            "json",
        )
    )
    averaged = json.loads(
        write_surface(
            tmp_path, "--view", "map", "--task", "brackets", "--x", "length", "--y", "kinds", "--format", "json"
        )
    )
    assert sum(row["n"] + row["truncated"] for row in content["rows"]) == 24
    assert sum(row["n"] + row["truncated"] for row in averaged["rows"]) == 48
    first, second = sorted(study.conditions.values_list("condition_id", flat=True))
    options = ("--view", "difference", "--task", "swaps", "--condition", first, "--against", second)
    forward = list(csv.DictReader(io.StringIO(write_surface(tmp_path, *options))))
    options = ("--view", "difference", "--task", "swaps", "--condition", second, "--against", first)
    back = list(csv.DictReader(io.StringIO(write_surface(tmp_path, *options))))
    assert [float(row["difference"]) for row in forward] == [-float(row["difference"]) for row in back]
    assert r"\toprule" in write_surface(tmp_path, "--format", "latex")
    assert write_surface(tmp_path, "--format", "md").count("|") > 20


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("cells.csv", (), "condition,length,"),
        ("cells.md", (), "**brackets by condition**"),
        ("cells.tex", (), "\\begin{table}"),
        ("cells.json", (), "{"),
        ("cells", (), "condition,length,"),
        ("cells.csv", ("--format", "json"), "{"),
    ],
)
def test_the_suffix_of_the_path_chooses_the_format(study, tmp_path, name, options, start):
    out = tmp_path / name
    call_command("surface", "space", "--out", str(out), *options)
    assert out.read_text().startswith(start)


def test_a_path_with_the_suffix_of_no_table_is_refused(study, tmp_path):
    with pytest.raises(CommandError, match=r"--out: the name must end in one of \.csv, ") as caught:
        call_command("surface", "space", "--out", str(tmp_path / "cells.parquet"))
    assert (caught.value.returncode, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "chess"], "--task: 'chess' is not one of brackets, swaps"),
        (["--x", "colour"], "--x: 'colour' is not one of"),
        (["--condition", "nobody"], "--condition: there is no condition 'nobody'"),
        (["--at", "length"], "--at: write NAME=VALUE"),
        (["--at", "colour=red"], "--at colour: 'red'"),
        (["--wave", "7"], "--wave: there is no wave 7"),
    ],
)
def test_an_unknown_selection_is_refused(study, tmp_path, options, message):
    with pytest.raises(CommandError, match=re.escape(message)) as caught:
        write_surface(tmp_path, *options)
    assert caught.value.returncode == 2


@shared_rows
def listed_figures(study_of_file):
    """Compute the values behind the page of figures, and the values that these ask for."""
    client = Client()
    client.force_login(study_of_file.owner)
    for _ in range(2):
        client.get(reverse("experiment_figures", args=["space"]), {"space-task": "swaps", "mm": "120"})
        compute_aggregates(list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)))


FIGURES = ("map", "surface", "curves", "models", "difference", "leaderboard")


def test_the_figures_page_lists_surface_figures_and_keeps_selections(client, study, listed_figures):
    client.force_login(study.owner)
    page = client.get(reverse("experiment_figures", args=["space"]), {"space-task": "swaps", "mm": "120"})
    text = page_text(page)
    assert re.findall(r'id="figure-space-(\w+)"', text) == list(FIGURES)
    assert '<input type="hidden" name="space-task" value="swaps"' in text
    explorer = client.get(reverse("explorer", args=["space"]), {"task": "swaps", "x": "max_depth"})
    link = re.search(r'href="([^"]+)">Figures for papers', page_text(explorer)).group(1).replace("&amp;", "&")
    assert "space-task=swaps" in link
    assert "space-x=max_depth" in link
    assert "Heat map: swaps" in page_text(client.get(link))


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_every_format_and_a_data_file(client, study, listed_figures, name):
    client.force_login(study.owner)
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "csv": b""}
    for file_format, start in starts.items():
        address = reverse("figure_file", args=["space", f"space-{name}", file_format])
        answer = client.get(address, {"space-task": "swaps", "mm": "120", "palette": "grey", "font": "7"})
        assert answer.status_code == 200
        assert answer.content.startswith(start)
        if file_format == "svg":
            width = float(re.search(rb'width="([\d.]+)pt"', answer.content).group(1))
            assert width == pytest.approx(120 / 25.4 * 72, rel=0.01)
        if file_format == "csv":
            assert len(answer.content.splitlines()) > 1


def test_an_experiment_without_parametric_tasks_has_no_surface_files(client, study):
    from tests.factories.studies import make_rated_study

    other = make_rated_study()
    client.force_login(other.owner)
    assert "figure-space-" not in page_text(client.get(reverse("experiment_figures", args=[other.slug])))
