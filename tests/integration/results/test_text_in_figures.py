"""The texts of every figure: at least 12 pixels high, and none covers another text, a point, a line or a bar."""

from itertools import combinations

import pytest
from django.http import QueryDict
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from grading_app.models import CachedAggregate
from grading_app.publish.figures.figure_set import iterate_figures
from grading_app.results import plot_style
from grading_app.tasks import compute_aggregates
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.factories.studies import make_graded_study, make_rated_study
from tests.integration.results.test_figures_for_papers import list_shown_texts
from tests.integration.styleguide.test_contrast import compute_contrast

pytestmark = pytest.mark.django_db


def make_space_study():
    """Return two models that solve the short cases of a parametric task, and a quarter of the long ones."""
    space = """
name: study
precision: {low: {count: 24}}
tasks:
  - name: brackets
    params: {length: [4, 16], max_depth: [2, 4], kinds: [1]}
"""
    return make_space_experiment(
        "space", dataset=make_space_dataset(text=space), models=("large-model", "small-model"),
        outcome=lambda item, _: "wrong" if item.metadata["params"]["length"] == 16 and item.position % 4 else "right",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [plot_style.NARROW, plot_style.WIDE])
@pytest.mark.parametrize("make_study", [make_graded_study, make_rated_study, make_space_study])
def test_texts_are_large_and_cover_nothing(make_study, width):
    experiment, problems = make_study(), []
    list(iterate_figures(experiment, QueryDict()))  # The first visit requests what a worker computes.
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
    for figure in iterate_figures(experiment, QueryDict()):
        drawing = figure.draw(width)
        texts = list_shown_texts(drawing)
        small = [text.get_text() for text in texts if text.get_fontsize() < plot_style.SMALL - 0.01]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
        covered = [(a, b) for (a, first), (b, second) in combinations(boxes, 2) if covers(first, second)]
        problems += [(figure.name, "small", text) for text in small]
        problems += [(figure.name, "covers", *pair) for pair in covered]
        problems += [(figure.name, *problem) for problem in find_hidden_marks(drawing, texts)]
    assert not problems, "\n".join(map(str, problems))


def covers(first: Bbox, second: Bbox) -> bool:
    """Return whether the boxes have more than a pixel in common in both directions."""
    shared = Bbox.intersection(first, second)
    return shared is not None and min(shared.width, shared.height) > 1


def find_hidden_marks(drawing, texts):
    """Yield (kind, text) for each point, line and bar of a drawing that a text covers.

    A text may lie within a cell of a heat map if its contrast there is 4.5 or more.
    """
    boxes = [(text, text.get_window_extent()) for text in texts]
    for axes in drawing.axes:
        points = [place for line in axes.lines if line.get_marker() != "None"
                  for place in axes.transData.transform(line.get_xydata())]  # fmt: skip
        bars = [(bar, bar.get_window_extent()) for bar in axes.patches if isinstance(bar, Rectangle)]
        for text, box in boxes:
            inner = box.padded(-1)
            visible = Bbox.intersection(inner, axes.bbox)  # Lines end where the panel ends.
            yield from (("point", text.get_text()) for place in points if box.contains(*place))
            for path, is_clipped in iterate_lines(axes):
                part = visible if is_clipped else inner
                if part is not None and path.intersects_bbox(part, filled=False):
                    yield "line", text.get_text()
            for bar, area in bars:
                is_inside = area.contains(box.x0, box.y0) and area.contains(box.x1, box.y1)
                if covers(box, area) and not (is_inside and is_readable(text, bar)):
                    yield "bar", text.get_text()


def iterate_lines(axes):
    """Yield (path in pixels, whether the panel cuts it) of each line: intervals, reference lines, curves, the axis."""
    for line in axes.lines:
        if line.get_visible() and line.get_linestyle() != "None" and line.get_linewidth():
            yield line.get_transform().transform_path(line.get_path()), line.get_clip_on()
    for group in axes.collections:
        if isinstance(group, LineCollection):
            yield from ((group.get_transform().transform_path(path), group.get_clip_on()) for path in group.get_paths())
    for spine in axes.spines.values():
        if spine.get_visible():
            yield spine.get_transform().transform_path(spine.get_path()), False


def is_readable(text, bar):
    """Return whether the text has enough contrast on the bar in both themes. A bar may let the ground through."""
    colours, alpha = (to_hex(text.get_color()), to_hex(bar.get_facecolor()), plot_style.SURFACE), bar.get_facecolor()[3]
    for fore, back, ground in (colours, [plot_style.DARK_OF[colour] for colour in colours]):
        mixed = [alpha * over + (1 - alpha) * under for over, under in zip(to_rgb(back), to_rgb(ground), strict=True)]
        if compute_contrast(fore, to_hex(mixed)) < 4.5:
            return False
    return True


def test_the_search_finds_texts_over_points_lines_and_bars():
    drawing = plot_style.make_figure(300, 200)
    axes = plot_style.style_axes(drawing.add_axes((0, 0.2, 1, 0.8)))
    axes.set(xlim=(0, 10), ylim=(0, 10))
    axes.plot([5, 5], [6, 10], color=plot_style.DATA)
    axes.axhline(1, color=plot_style.RULE)
    axes.barh([4], [2], height=2, color=plot_style.DATA)
    axes.barh([4], [3], left=6, height=3, color=plot_style.SHADES[2])
    for x, y, name in ((4.5, 8, "interval"), (4, 1, "reference"), (1, 4, "bar"), (6.5, 4, "cell"), (1, 8, "free")):
        plot_style.write_beside(axes, (x, y), name)
    found = set(find_hidden_marks(drawing, list_shown_texts(drawing)))
    assert found == {("line", "interval"), ("line", "reference"), ("bar", "bar")}
