"""Figures: their content for recorded answers, and their safety."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from django.conf import settings
from scipy.stats import t as student

from grading_app.grading.scoring import grade
from grading_app.results import plot_style
from grading_app.results.figures import RESULTS_FIGURES, accuracy, list_results_figures, norms
from grading_app.results.frames import load_frames
from runs_app.models import Point
from tests import factories
from tests.factories import recordings
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script> & $\\frac{x}{y}$ {0} %s"


@shared_rows
def load_frames_with_everything():
    """Return rated and graded answers, with norms, categories and names that contain markup."""
    items = [
        {"key": f"i{at}", "target": str(at), "category": ("even", HOSTILE)[at % 2], "norms": {"valence": 1 + at % 6}}
        for at in range(8)
    ]
    experiment = factories.make_experiment(
        dataset=factories.make_dataset(items=items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence", title=HOSTILE)],
        samples=2,
        scorers=["numeric", "exact_match"],
        adaptive={"by": "category", "scorer": "numeric", "targetci": 0.1},
    )
    for run in factories.make_runs(experiment):
        Point.objects.create(run=run, key={"category": HOSTILE}, items=[1], n_items=1, n_total=8, n_correct=6)
        factories.plan_trials(
            run,
            answer=lambda item, _, index, run=run: {
                "answer": item.target if (run.pk + index + int(item.target)) % 3 else "9",
                "rating": 1 + (int(item.target) + index + run.pk) % 7,
            },
        )
    grade(experiment, by="a test")
    return load_frames(experiment)


def draw(name, frames, width=plot_style.WIDE, theme="auto"):
    figure = RESULTS_FIGURES[name](frames)
    return plot_style.render_svg(lambda: figure.draw(width), theme).decode()


def parse_svg(picture):
    return ElementTree.fromstring(picture)  # noqa: S314 - our own picture


@pytest.mark.parametrize("name", RESULTS_FIGURES)
def test_a_figure_is_svg_without_scripts(name, load_frames_with_everything):
    tree = parse_svg(draw(name, load_frames_with_everything))
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert "script" not in tags
    assert "foreignObject" not in tags
    names = {attribute.rpartition("}")[2] for element in tree.iter() for attribute in element.attrib}
    assert not {name for name in names if name.startswith("on")}
    links = [value for element in tree.iter() for key, value in element.attrib.items() if key.endswith("href")]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


@pytest.mark.parametrize("name", ["ratings", "norms"])
def test_names_are_shown_literally_and_never_as_formulas(name, load_frames_with_everything):
    texts = "".join(parse_svg(draw(name, load_frames_with_everything)).itertext())
    assert "<script>" in texts


@pytest.mark.parametrize("name", RESULTS_FIGURES)
@pytest.mark.parametrize("width", [plot_style.WIDE, plot_style.NARROW])
def test_a_figure_has_the_size_reserved_on_the_page(name, width, load_frames_with_everything):
    picture = draw(name, load_frames_with_everything, width)
    points = tuple(float(number) for number in re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', picture).groups())
    expected = RESULTS_FIGURES[name](load_frames_with_everything).size(width)
    assert tuple(point / plot_style.PIXEL for point in points) == pytest.approx(expected, abs=1)
    assert expected[0] <= width


def test_a_figure_follows_the_readers_theme_or_the_requested_theme(load_frames_with_everything):
    auto, light, dark = (
        draw("accuracy", load_frames_with_everything, theme=theme) for theme in ("auto", "light", "dark")
    )
    assert f"light-dark({plot_style.DATA}, {plot_style.DARK_OF[plot_style.DATA]})" in auto
    assert plot_style.DATA in light
    assert plot_style.DARK_OF[plot_style.DATA] not in light
    assert plot_style.DARK_OF[plot_style.DATA] in dark
    assert plot_style.DATA not in dark


def test_the_same_figure_gives_the_same_bytes(load_frames_with_everything):
    assert draw("norms", load_frames_with_everything) == draw("norms", load_frames_with_everything)


def test_colours_match_the_site():
    tokens = (settings.BASE_DIR / "evalsite/static/evalsite/tokens.css").read_text()
    for token, light in {
        "text": plot_style.TEXT,
        "muted": plot_style.MUTED,
        "line": plot_style.LINE,
        "accent": plot_style.DATA,
    }.items():
        assert f"--{token}: light-dark({light}, {plot_style.DARK_OF[light]})" in tokens


def test_an_experiment_without_data_has_no_figures():
    frames = load_frames(factories.make_experiment())
    assert list_results_figures(frames) == []


@pytest.mark.slow
def test_model_means_correlate_with_human_norms_as_computed_from_the_recorded_rows():
    experiment, rows = recordings.make_rated_photographs()
    panels = norms.list_panels(load_frames(experiment))
    humans = {
        (item.key, norm.dimension): norm.mean
        for item in experiment.dataset.items.prefetch_related("norms")
        for norm in item.norms.all()
    }
    assert len(panels) == 4
    for panel in panels:
        name = panel.dimension.title.lower()
        expected_text = {}
        for row in rows:
            if panel.condition in row["model"] and row["dimension"] == name and row["rating"]:
                expected_text.setdefault(row["image_id"], []).append(int(row["rating"]))
        x = np.array([humans[key, name] for key in expected_text])
        y = np.array([np.mean(values) for values in expected_text.values()])
        r = np.corrcoef(x, y)[0, 1]
        without = [np.arctanh(np.corrcoef(np.delete(x, at), np.delete(y, at))[0, 1]) for at in range(len(x))]
        jackknife = student.ppf(0.975, len(x) - 1) * np.sqrt((len(x) - 1) * np.var(without))
        reach = max(1.959963984540054 / np.sqrt(len(x) - 3), jackknife)
        low, high = np.tanh(np.arctanh(r) + np.array([-1, 1]) * reach)
        correlation = panel.correlation
        assert (correlation.r, correlation.low, correlation.high, correlation.n) == pytest.approx(
            (r, low, high, len(x))
        )


@pytest.mark.slow
def test_accuracy_of_recorded_solutions_matches_the_publication():
    experiment, _ = recordings.make_word_problems()
    grade(experiment, by="a test")
    table = accuracy.make_figure(load_frames(experiment)).table()
    assert {row["condition"]: round(row["mean"] * row["n"]) for row in table.rows} == {
        "6b_finetuning": 286,
        "6b_verification": 515,
    }
    (_, first) = table.cells()
    assert first[1:5] == ["6b_verification", "1\u202f319", "1\u202f319", "39.0 %"]
    assert first[5] == "36.4 to 41.7 %"
