"""The recipe for a figure, carried out on a copy: a module and a line put it on pages, in papers and reports."""

from urllib.parse import quote

import pytest
from django.db import connection

from tests.system.recipes.test_recipes_on_a_copy import Copy

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.django_db]

MODULE = '''"""The number of finished answers in each condition."""

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.frames import Frames
from grading_app.results.table import ResultColumn, ResultTable


def make_figure(frames: Frames) -> Figure | None:
    rows = [{"condition": frames.labels[one.condition], "answers": one.done} for one in frames.outcomes if one.done]
    if not rows:
        return None

    def make_grid(width):
        return plot_style.Grid(1, 1, width, 24 * len(rows), left=120)

    def draw(width):
        drawing, (axes,) = make_grid(width).make_panels()
        axes.barh([row["condition"] for row in rows], [row["answers"] for row in rows], color=plot_style.DATA)
        return drawing

    columns = [ResultColumn("condition", "Condition"), ResultColumn("answers", "Answers", "count")]
    return Figure(
        "answers",
        "Answers by condition",
        "Finished answers.",
        "Bars of finished answers.",
        lambda width: (width, make_grid(width).height),
        draw,
        lambda: ResultTable("answers", "Answers by condition", columns, rows),
        in_report=True,
    )
'''
TEST = '''"""The new figure is on every page, and in every file, that shows figures."""

import csv
import io
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from grading_app.models import ShareLink
from grading_app.publish.report.build import build_document
from tests.factories.gradings import make_answered_experiment, make_gradings

pytestmark = pytest.mark.django_db


def test_a_new_figure_is_everywhere(client):
    experiment = make_answered_experiment("quiz", items=6, models=("a", "b"))
    make_gradings(experiment, "numeric", lambda trial: float(trial.item.position % 2), kind="rule")
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=["quiz"]))
    (shown,) = [one for one in page.context["figures"] if one["name"] == "answers"]
    assert "Answers by condition" in page.content.decode()
    starts = {"svg": b"<?xml", "png": b"\\x89PNG", "pdf": b"%PDF"}
    for file_format, start in starts.items():
        address = reverse("figure_file", args=["quiz", "answers", file_format])
        assert client.get(address, {"mm": "85", "dpi": "72"}).content.startswith(start)
    assert client.get(shown["address"]).content.startswith(b"<svg")
    table = client.get(dict(shown["table_files"])["CSV"]).content.decode()
    assert [row["answers"] for row in csv.DictReader(io.StringIO(table))] == ["6", "6"]
    assert 'id="figure-answers"' in client.get(reverse("experiment_figures", args=["quiz"])).content.decode()
    expires = timezone.now() + timedelta(days=7)
    _, token = ShareLink.create(experiment, ShareLink.Scope.EXPERIMENT, expires, by=experiment.owner)
    client.logout()
    assert 'id="figure-answers"' in client.get(reverse("shared_figures", args=[token])).content.decode()
    out = io.StringIO()
    call_command("figures", "quiz", "--list", stdout=out)
    assert "answers  Answers by condition" in out.getvalue()
    assert build_document(experiment).find_figure("answers").svg.startswith("<svg")
'''


def test_a_figure_is_a_module_and_a_line(tmp_path):
    checkout = Copy(tmp_path)
    checkout.add("grading_app/results/figures/answers.py", MODULE)
    registry = "grading_app/results/figures/__init__.py"
    checkout.change(registry, "figures import accuracy,", "figures import accuracy, answers,")
    checkout.change(
        registry,
        '    "points": points.make_figure,\n',
        '    "points": points.make_figure,\n    "answers": answers.make_figure,\n',
    )
    checkout.add("tests/integration/results/test_a_new_figure.py", TEST)
    server = connection.settings_dict  # The copy gets a database of its own on the server of this test.
    user = f"{server['USER']}:{server['PASSWORD']}"
    url = f"postgresql://{user}@{quote(server['HOST'], safe='')}:{server['PORT']}/recipe_of_a_figure"
    code, output = checkout.test("tests/integration/results/test_a_new_figure.py", DATABASE_URL=url)
    assert code == 0, output
