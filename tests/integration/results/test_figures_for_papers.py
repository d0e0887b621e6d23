"""Figures for papers: one view for every figure and format, the style in the URL, and the data of each figure."""

import csv
import io
import json

import numpy as np
import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from matplotlib.offsetbox import AnnotationBbox
from matplotlib.text import Text
from PIL import Image

from evalsite.lib import permissions
from grading_app.models import CachedAggregate
from grading_app.publish.figures.figure_set import FigureSource, iterate_figures
from grading_app.publish.figures.print_style import PALETTES, PrintStyle, render_figures_pdf
from grading_app.results import cached_aggregates, plot_style
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.figures.calibration import load_calibrations
from grading_app.results.figures.dimensions import fit_quadratic
from grading_app.tasks import compute_aggregates
from runs_app.models import Trial
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.studies import make_rated_study
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def study():
    norms = [{"valence": 2 + n % 4, "arousal": 3} for n in range(10)]
    items = [{"key": f"p{n}", "category": "AB"[n % 2], "norms": one} for n, one in enumerate(norms)]
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("pictures", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=3,
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, dim, at: _rating(item.position, dim.name, at))
    return experiment


def _rating(position, dimension, index):
    number = 1 + (position + (index * position) % 3 + (dimension == "arousal") * position % 5) % 7
    return {"answer": str(number), "rating": number}


@pytest.fixture
def owner(client, study):
    client.force_login(study.owner)
    return client


def build_figure_url(name, file_format, **query):
    return reverse("figure_file", args=["study", name, file_format], query={"mm": "", **query})


def read_rows(response):
    return list(csv.DictReader(io.StringIO(response.content.decode())))


def test_a_rating_study_has_all_its_figures(study):
    names = {one.name for one in FigureSource(study, QueryDict("measure=valence")).list_figures()}
    assert {
        "dimension-means",
        "dimension-sds",
        "dimension-mean-sd",
        "dimension-human",
        "dimension-conditions",
        "plane",
        "plane-categories",
        "reliability",
        "ratings",
        "norms",
    } <= names


@pytest.mark.slow
def test_every_figure_can_be_downloaded_in_each_format_and_its_data_as_csv(owner, study):
    page = owner.get(reverse("experiment_figures", args=["study"]))
    shown = page.context["figures"]
    assert len(shown) > 8
    for one in shown:
        assert read_rows(owner.get(dict(one["files"])["CSV"])), one["name"]
        assert set(dict(one["files"])) == {"SVG", "PNG", "PDF", "CSV", "MD", "TEX"}
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for file_format, start in starts.items():
        assert owner.get(build_figure_url("plane-categories", file_format, dpi="72")).content.startswith(start)


@pytest.mark.slow
def test_width_font_and_resolution_come_from_the_url(owner):
    picture = Image.open(io.BytesIO(owner.get(build_figure_url("reliability", "png", mm="85", dpi="200")).content))
    assert picture.width == pytest.approx(85 / 25.4 * 200, abs=3)
    small, large = (
        owner.get(build_figure_url("reliability", "svg", mm="85", font=str(font))).content for font in (6, 10)
    )
    assert small != large
    assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.5)
    tall = Image.open(
        io.BytesIO(owner.get(build_figure_url("reliability", "png", mm="85", height="60", dpi="100")).content)
    )
    assert tall.height == pytest.approx(60 / 25.4 * 100, abs=3)


@pytest.mark.parametrize("palette", PALETTES)
def test_each_palette_replaces_the_colours_of_the_site(study, palette):
    source = FigureSource(study, QueryDict("measure=valence"))
    figure = source.find_figure("dimension-mean-sd")
    drawn = PrintStyle(width_mm=120, palette=palette).write(figure.draw, "svg").decode().lower()
    assert PALETTES[palette].data in drawn
    if palette != "site":
        assert plot_style.DATA not in drawn
        assert plot_style.HUMAN not in drawn


def test_labels_and_title_come_from_the_url(study):
    source = FigureSource(study, QueryDict("measure=valence"))
    figure = source.find_figure("reliability")
    drawn = PrintStyle(title="$x_1$ <b>", x_label="Wiederholungen", y_label="R").apply(figure.draw)
    assert drawn.axes[0].get_xlabel() == "Wiederholungen"
    assert drawn.axes[0].get_ylabel() == "R"
    assert "$x_1$ <b>" in [text.get_text() for text in drawn.texts]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["svg", "png", "pdf"])
def test_the_same_rows_and_style_give_the_same_bytes(study, file_format):
    figure = FigureSource(study).find_figure("dimension-human")
    first, second = (PrintStyle(dpi=72).write(figure.draw, file_format) for _ in range(2))
    assert first == second


def test_figure_data_match_the_rows(owner, study):
    rows = read_rows(owner.get(build_figure_url("dimension-means", "csv", measure="valence")))
    for row in rows:
        if row["rated_by"] != "Human norms":
            trials = Trial.objects.filter(
                run__experiment=study, item__key=row["item"], dimension__name="valence",
                run__condition__model__name=row["rated_by"],
            ).values_list("rating", flat=True)  # fmt: skip
            assert float(row["mean"]) == pytest.approx(np.mean(trials))
            assert float(row["sd"]) == pytest.approx(np.std(trials, ddof=1))
    assert len(rows) == 30, "two models and the norms"


def test_the_quadratic_fit_matches_numpy():
    x = np.array([1.0, 2, 3, 4, 5, 6])
    y = 2 + 0.5 * x - 0.3 * x**2
    fitted, explained = fit_quadratic(x, y)
    assert fitted == pytest.approx([2, 0.5, -0.3])
    assert explained == pytest.approx(1)
    assert fit_quadratic(x[:2], y[:2]) is None


@pytest.mark.parametrize(
    "query", [{"mm": "5000"}, {"dpi": "1200", "mm": "400"}, {"font": "0"}, {"palette": "rainbow"}, {"measure": "x"}]
)
def test_a_value_out_of_bounds_is_refused_with_its_field(owner, query):
    assert owner.get(build_figure_url("plane", "png", **query)).status_code == 400
    page = owner.get(reverse("experiment_figures", args=["study"], query=query))
    assert page.context["form"].errors


def test_unknown_figures_and_formats_are_not_found(owner):
    assert owner.get(build_figure_url("pie", "svg")).status_code == 404
    assert owner.get(build_figure_url("plane", "exe")).status_code == 404


def test_other_users_get_no_figure(client, study):
    client.force_login(factories.make_user("visitor", permissions.VIEWER))
    for address in (
        build_figure_url("plane", "csv"),
        reverse("experiment_figures", args=["study"]),
        reverse("figures_summary", args=["study"]),
    ):
        assert client.get(address).status_code == 404


def test_the_summary_has_items_samples_and_correlations(owner, study):
    fitted = json.loads(owner.get(reverse("figures_summary", args=["study"])).content)
    assert fitted["items"] == 10
    assert fitted["dimensions"]["valence"]["conditions"]["a"]["samples_per_item"] == {"least": 3, "most": 3, "mean": 3}
    rows = read_rows(owner.get(build_figure_url("norms", "csv")))
    pairs = [
        (float(r["human_mean"]), float(r["model_mean"]))
        for r in rows
        if (r["condition"], r["dimension"]) == ("a", "Valence")
    ]
    expected = np.corrcoef(*zip(*pairs, strict=True))[0, 1]
    assert fitted["dimensions"]["valence"]["conditions"]["a"]["with_norms"]["r"] == pytest.approx(expected)
    assert fitted["dimensions"]["arousal"]["conditions"]["a"]["with_norms"]["r"] is None, "its norms do not vary"
    assert {tuple(one["dimensions"]) for one in fitted["between_dimensions"]} == {("valence", "arousal")}


def test_item_images_replace_markers_on_request(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    experiment = make_rated_study("pictured", images=True, dimensions=("valence", "arousal"))
    plain, pictured = (
        FigureSource(experiment, QueryDict(query)).find_figure("plane") for query in ("measure=valence", "images=on")
    )
    boxes = [
        sum(isinstance(one, AnnotationBbox) for one in figure.draw(560).axes[0].artists) for figure in (plain, pictured)
    ]
    assert boxes == [0, 8]
    assert plain.table().rows == pictured.table().rows


def test_the_plane_shows_the_two_dimensions_of_the_url():
    experiment = make_rated_study("affect", dimensions=("valence", "arousal", "dominance"))
    query = QueryDict("measure=dominance&second=arousal")
    figure = FigureSource(experiment, query).find_figure("plane")
    (axes, *_) = figure.draw(560).axes
    assert figure.title == "Dominance and arousal"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Dominance", "Arousal")
    row = figure.table().rows[0]
    for column, name in (("x", "dominance"), ("y", "arousal")):
        rated = Trial.objects.filter(
            run__experiment=experiment, item__key=row["item"], dimension__name=name, run__condition__model__name="a",
            rating__isnull=False,
        )  # fmt: skip
        assert row[column] == pytest.approx(np.mean(rated.values_list("rating", flat=True)))


@pytest.mark.slow
def test_one_pdf_contains_every_figure(study):
    measures = {"measure=valence", "measure=arousal"}
    names = {
        (one.name, one.title)
        for query in measures
        for one in FigureSource(study, QueryDict(query)).list_figures()
        if one.name.startswith("dimension-")
    }
    everyone = {(one.name, one.title) for one in iterate_figures(study, QueryDict())}
    assert names <= everyone
    call_command("figures", "study", "--list", stdout=io.StringIO())  # It computes data that pages leave to a worker.
    everyone = {(one.name, one.title) for one in iterate_figures(study, QueryDict())}
    forests = {title for name, title in everyone if name == "analysis-differences"}
    assert forests == {"Valence: differences between conditions", "Arousal: differences between conditions"}
    judged = make_answered_experiment("judged", items=4, models=("a", "b"))
    make_gradings(judged, "numeric", lambda trial: float(trial.item.position % 2), kind="rule")
    pdf = render_figures_pdf(iterate_figures(judged, QueryDict()), PrintStyle())
    assert pdf.count(b"/Type /Page ") == len(list(iterate_figures(judged, QueryDict()))) > 1
    assert render_figures_pdf(iterate_figures(judged, QueryDict()), PrintStyle()) == pdf


@pytest.mark.slow
def test_the_command_writes_one_or_all_figures(study, tmp_path):
    listed = io.StringIO()
    call_command("figures", "study", "--list", stdout=listed)
    assert "plane-categories" in listed.getvalue()
    assert "analysis-differences" in listed.getvalue(), "the command computes what pages leave to a worker"
    one = tmp_path / "plane.svg"
    call_command("figures", "study", "--figure", "plane", "--out", str(one), "--query", "mm=85&palette=grey")
    assert b"<svg" in one.read_bytes()
    summary = tmp_path / "summary.json"
    call_command("figures", "study", "--out", str(summary))
    assert json.loads(summary.read_text())["experiment"] == "study"
    for options in (["--figure", "pie", "--format", "svg"], ["--format", "svg"], ["--query", "mm=1", "--list"]):
        with pytest.raises(CommandError) as caught:
            call_command("figures", "study", *options)
        assert caught.value.returncode == 2


def test_calibration_is_the_mean_reference_by_judge_score():
    experiment = make_answered_experiment("judged", items=12)
    make_gradings(experiment, "numeric", lambda trial: float(trial.item.position % 3 == 0), kind="rule")
    make_gradings(experiment, "judge", lambda trial: 1.0 + 3 * (trial.item.position % 2))
    (fitted,) = load_calibrations(experiment)
    assert fitted.reference == "Number within tolerance"
    assert {one.score: (one.n, one.mean) for one in fitted.bins} == {
        1.0: (6, pytest.approx(2 / 6)),
        4.0: (6, pytest.approx(2 / 6)),
    }
    expected = (abs(0 - 2 / 6) + abs(0.5 - 2 / 6)) / 2
    assert fitted.error == pytest.approx(expected)
    assert all(one.low < one.mean < one.high for one in fitted.bins)


def test_a_worker_compares_many_verdicts_with_the_reference(monkeypatch):
    experiment = make_answered_experiment("judged", items=12)
    make_gradings(experiment, "numeric", lambda trial: float(trial.item.position % 3 == 0), kind="rule")
    make_gradings(experiment, "judge", lambda trial: 1.0 + 3 * (trial.item.position % 2))
    at_once = FigureSource(experiment).find_figure("calibration")
    cache.clear()
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", 0)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    source = FigureSource(experiment)
    assert (source.find_figure("calibration"), source.is_waiting) == (None, True)
    compute_rows(list(CachedAggregate.objects.filter(name="calibration").values_list("pk", flat=True)), seconds=60)
    with CaptureQueriesContext(connection) as queries:
        stored = FigureSource(experiment).find_figure("calibration")
    assert stored.table().rows == at_once.table().rows
    assert not [query for query in queries if "grading_app_answerscore" in query["sql"]]


def list_shown_texts(figure):
    """Return the visible texts of a drawn figure."""
    figure.draw_without_rendering()
    hidden = set()
    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        hidden |= {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    texts = [one for one in figure.findobj(Text) if one.get_text().strip() and one.get_visible()]
    return [one for one in texts if one not in hidden]


def measure_texts(figure):
    """Return the outlines of the visible texts of a drawn figure, in pixels."""
    return {one.get_text(): one.get_window_extent() for one in list_shown_texts(figure)}


@pytest.mark.parametrize("name", ["dimension-human", "dimension-conditions", "ratings", "reliability"])
def test_a_title_is_above_the_figure_and_covers_nothing(study, name):
    (figure,) = [one for one in FigureSource(study, QueryDict("measure=valence")).list_figures() if one.name == name]
    plain = PrintStyle(width_mm=85).apply(figure.draw)
    titled = PrintStyle(width_mm=85, title="Our title").apply(figure.draw)
    assert titled.get_size_inches()[0] == pytest.approx(plain.get_size_inches()[0])
    assert titled.get_size_inches()[1] > plain.get_size_inches()[1]
    outlines = measure_texts(titled)
    title = outlines.pop("Our title")
    assert not [text for text, outline in outlines.items() if title.overlaps(outline)]
    assert title.y1 <= titled.bbox.y1


@pytest.mark.parametrize("width", [85, 170])
def test_row_labels_are_inside_the_figure(study, width):
    source = FigureSource(study, QueryDict("measure=valence"))
    figure = source.find_figure("dimension-conditions")
    drawn = PrintStyle(width_mm=width, font_pt=7).apply(figure.draw)
    assert min(outline.x0 for outline in measure_texts(drawn).values()) >= drawn.bbox.x0


def test_long_labels_wrap_at_a_separator():
    assert plot_style.wrap("small · plain", 190) == "small · plain"
    pair = "sim-small · step-by-step − sim-large · step-by-step"
    assert plot_style.wrap(pair, 190) == "sim-small · step-by-step\n− sim-large · step-by-step"
    assert plot_style.wrap("a" * 60, 190) == plot_style.shorten("a" * 60, 190)


def test_the_page_shows_only_the_chosen_figure(owner):
    page = owner.get(reverse("experiment_figures", args=["study"], query={"only": "plane", "x": "Pleasantness"}))
    assert [one["name"] for one in page.context["figures"]] == ["plane"]
    choices = dict(page.context["form"]["only"].field.widget.choices)
    assert choices["dimension-means"] == "Valence: distribution of item means"
    assert 'value="plane" selected' in page.content.decode()


def test_the_files_of_the_page_are_those_of_its_figures_in_the_chosen_style(owner):
    page = owner.get(reverse("experiment_figures", args=["study"], query={"only": "plane", "font": "8"}))
    (figure,) = page.context["figures"]
    addresses = dict(figure["files"]) | {"all": page.context["all_pdf"]}
    for kind, address in addresses.items():
        name, file_format = ("all", "pdf") if kind == "all" else ("plane", kind.lower())
        assert address == reverse("figure_file", args=["study", name, file_format]) + "?only=plane&font=8&mm="
        assert owner.get(address).status_code == 200


@pytest.fixture
def second_wave(study):
    for run in factories.make_runs(study, wave=1, status="done"):
        factories.plan_trials(run, answer=lambda item, dim, at: {"answer": "7", "rating": 7})
    return study.waves.get(number=1)


def test_an_unknown_figure_in_the_url_is_an_error_of_its_field(owner):
    address = reverse("experiment_figures", args=["study"])
    assert owner.get(address, {"only": "nothing"}).context["form"].is_valid(), "a worker may add the figure"
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
    page = owner.get(address, {"only": "nothing"})
    assert page.context["form"].errors == {"only": ["There is no such figure of this measure. Choose another one."]}
    assert page.context["figures"] == []


def test_figures_and_summary_follow_the_wave_in_the_url(owner, study, second_wave, tmp_path):
    sources = [FigureSource(study, QueryDict(query)) for query in ("", "wave=1", "wave=9")]
    assert [one.wave for one in sources] == [None, second_wave, None]
    summary = json.loads(owner.get(reverse("figures_summary", args=["study"], query={"wave": 1})).content)
    assert summary["wave"] == 1
    assert summary["dimensions"]["valence"]["conditions"]["a"]["mean"] == 7
    assert owner.get(reverse("figures_summary", args=["study"], query={"wave": 9})).status_code == 404
    out = tmp_path / "means.csv"
    call_command("figures", "study", "--figure", "dimension-means", "--query", "wave=1", "--out", str(out))
    rows = list(csv.DictReader(out.open()))
    assert {float(row["mean"]) for row in rows if row["rated_by"] == "a"} == {7}
    with pytest.raises(CommandError, match="no wave 9"):
        call_command("figures", "study", "--list", "--query", "wave=9")


def test_each_grader_has_a_figure_of_answer_length():
    experiment = make_answered_experiment("judged", items=12)
    make_gradings(experiment, "numeric", lambda trial: float(trial.item.position % 2), kind="rule")
    make_gradings(experiment, "judge", lambda trial: 1.0 + 3 * (trial.item.position % 2))
    call_command("figures", "judged", "--list", stdout=(listed := io.StringIO()))
    lengths = [line for line in listed.getvalue().splitlines() if line.startswith("length")]
    assert len(lengths) == 2
    assert lengths[0].startswith("length  Number within tolerance:")
