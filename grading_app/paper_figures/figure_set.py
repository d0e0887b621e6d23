"""All figures of an experiment in one PDF, and a summary of its rating data as JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from django.http import QueryDict

from grading_app.paper_figures.figure_registry import list_figures
from grading_app.paper_figures.figure_source import FigureSource
from grading_app.paper_figures.kinds import PaperFigure
from grading_app.paper_figures.print_style import PrintStyle
from grading_app.paper_figures.rating_data import RatingData, Series, load_rating_data, match_items
from grading_app.reports import plot_style
from grading_app.statistics.correlation import pearson
from grading_app.statistics.item_scores import Floats
from runs_app.models import Experiment


def iterate_figures(experiment: Experiment, data: QueryDict) -> Iterator[PaperFigure]:
    """Yield the figures for each measure in turn; those that do not depend on the measure once."""
    seen = set()
    for measure in FigureSource(experiment).measures:
        chosen = data.copy()
        chosen["measure"] = measure.key
        for figure in list_figures(FigureSource(experiment, chosen)):
            if (figure.name, figure.title) not in seen:
                seen.add((figure.name, figure.title))
                yield figure


def render_figures_pdf(experiment: Experiment, data: QueryDict, style: PrintStyle) -> bytes:
    """Return one PDF with a page for each figure. The same rows give the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_pdf import PdfPages

    out = io.BytesIO()
    metadata = {"CreationDate": None, "Creator": None, "Producer": None}
    settings: Any = {"pdf.fonttype": 42, "text.parse_math": False}
    with plot_style.DRAWING, mpl.rc_context(settings), PdfPages(out, metadata=metadata) as pages:
        for figure in iterate_figures(experiment, data):
            drawn = style.apply(figure.draw)
            drawn.patch.set(visible=True, facecolor=plot_style.SURFACE)
            drawn.suptitle(figure.title, y=1.0, va="bottom", fontsize=style.font_pt, color=plot_style.TEXT)
            pages.savefig(drawn, bbox_inches="tight")
    return out.getvalue()


def summarize_ratings(source: FigureSource) -> dict[str, Any]:
    """Return the number of items, the samples per item and the correlations of each rated dimension.

    Correlations: with the norms, and between every two dimensions, by condition, with Fisher's 95 % interval.
    """
    experiment = source.experiment
    found = [data for one in source.measures if one.is_rating and (data := load_rating_data(source, one))]
    return {
        "experiment": experiment.slug,
        "dataset": str(experiment.dataset),
        "dataset_hash": experiment.dataset.content_hash,
        "wave": source.wave.number if source.wave else None,
        "items": experiment.dataset.active_count,
        "dimensions": {data.measure.key: _summarize_dimension(data) for data in found},
        "between_dimensions": [
            entry
            for at, one in enumerate(found)
            for other in found[at + 1 :]
            for entry in _correlate_conditions(one, other)
        ],
    }


def _summarize_dimension(data: RatingData) -> dict[str, Any]:
    return {
        "scale": list(data.ends),
        "conditions": {one.label: _summarize_condition(one, data.norms) for one in data.conditions},
        "norms": None if data.norms is None else {"items": int(data.norms.rated.sum())},
    }


def _summarize_condition(one: Series, norms: Series | None) -> dict[str, Any]:
    rated = one.rated
    content: dict[str, Any] = {
        "items": int(rated.sum()),
        "samples_per_item": {
            "least": int(one.n[rated].min()), "most": int(one.n[rated].max()), "mean": float(one.n[rated].mean()),
        },
        "mean": float(one.mean[rated].mean()),
    }  # fmt: skip
    if norms is not None:
        both = rated & norms.rated
        content["with_norms"] = _summarize_correlation(one.mean[both], norms.mean[both])
    return content


def _summarize_correlation(x: Floats, y: Floats) -> dict[str, Any]:
    found = pearson(list(x), list(y)) if len(x) else None
    if found is None:
        return {"items": len(x), "r": None}
    return {"items": found.n, "r": found.r, "low": found.low, "high": found.high, "p": found.p}


def _correlate_conditions(one: RatingData, other: RatingData) -> Iterator[dict[str, Any]]:
    at_one, at_other = match_items(one, other)
    others = {series.label: series for series in other.all_series}
    for series in one.all_series:
        if series.label in others:
            x, y = series.mean[at_one], others[series.label].mean[at_other]
            both = (x == x) & (y == y)
            yield {
                "rated_by": series.label,
                "dimensions": [one.measure.key, other.measure.key],
                **_summarize_correlation(x[both], y[both]),
            }
