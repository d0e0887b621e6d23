"""The data that a report's sections read: the experiment, its aggregates and the pages that show its rows. Each part is
loaded once, when the first section needs it. A worker or a command builds reports, never a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Count, Max, Min
from django.urls import reverse
from django.utils.http import urlencode

from grading_app.models import GradeCondition
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.report.document import FigureBlock, ReportSection, format_times, join_words
from grading_app.results import plot_style
from grading_app.results.analysis.data import AnalysisData, load_analysis_data
from grading_app.results.figure import Figure
from grading_app.results.frames import Frames, load_frames
from grading_app.results.leaderboard import BoardQuery, Leaderboard, compute_leaderboard
from grading_app.results.scope import Scope
from grading_app.results.scores import Measure, list_graders, list_measures
from runs_app.models import Attempt, Condition, Experiment, Run
from runs_app.planning.manifests import ANSWERED, build_manifest


@dataclass(frozen=True, slots=True)
class ServedAs:
    """A served model and provider of one condition, as the provider named them. "" is unreported."""

    model: str
    provider: str
    calls: int
    first: datetime | None
    last: datetime | None


class ReportSource:
    """The rows of one experiment for its report."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.sections: list[ReportSection] = []
        """The sections so far, in their order."""

    @cached_property
    def figures(self) -> FigureSource:
        """The data of the figures, with the values that this report has computed itself."""
        source = FigureSource(self.experiment)
        source.board, source.frames = self.board, self.frames
        source.get_scores = lambda measure: self.get_analysis_data(measure).scores  # type: ignore[method-assign]
        return source

    @cached_property
    def repetitions_text(self) -> str:
        """The number of times that a cell was asked: `once`, or `3 times in each of 2 waves (March, May)`."""
        waves = [str(wave) for wave in self.experiment.waves.answered()]
        times = format_times(self.experiment.samples)
        return times if len(waves) < 2 else f"{times} in each of {len(waves)} waves ({join_words(waves)})"

    @cached_property
    def frames(self) -> Frames:
        return load_frames(self.experiment)

    @cached_property
    def board(self) -> Leaderboard:
        return compute_leaderboard(BoardQuery(self.experiment))

    @cached_property
    def measures(self) -> list[Measure]:
        """The measures that have a score, in the order of the leaderboard."""
        keys = {measure.key for measure in self.board.measures}
        return [measure for measure in list_measures(self.experiment) if measure.key in keys]

    @cached_property
    def graders(self) -> list[GradeCondition]:
        return [
            grader for grader in list_graders([self.experiment.pk]) if grader.kind != GradeCondition.Kind.ADJUDICATED
        ]

    @cached_property
    def conditions(self) -> list[Condition]:
        queryset = self.experiment.conditions.select_related("model__endpoint", "prompt", "sampler")
        return list(queryset.order_by("pk"))

    @cached_property
    def generation_conditions(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.stage == Condition.Stage.GENERATE]

    @cached_property
    def judge_conditions(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.stage == Condition.Stage.JUDGE]

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the design itself, without those of judges."""
        return list(self.experiment.answer_runs.with_design().order_by("wave__number", "pk"))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return build_manifest(self.experiment)

    @cached_property
    def served_models(self) -> dict[int, list[ServedAs]]:
        """The served models and providers by condition, the most frequent first."""
        attempts = Attempt.objects.filter(run__experiment=self.experiment, outcome__in=ANSWERED).order_by()
        rows = attempts.values_list("run__condition", "served_model", "served_provider").annotate(
            calls=Count("pk"), first=Min("finished_at"), last=Max("finished_at")
        )
        by_condition: dict[int, list[ServedAs]] = {}
        for condition, model, provider, calls, first, last in rows:
            by_condition.setdefault(condition, []).append(ServedAs(model, provider, calls, first, last))
        return {
            key: sorted(entries, key=lambda entry: (-entry.calls, entry.model, entry.provider))
            for key, entries in by_condition.items()
        }

    def get_analysis_data(self, measure: Measure) -> AnalysisData:
        """Return the scores of one measure over all waves."""
        if measure.key not in self._analyses:
            self._analyses[measure.key] = load_analysis_data(Scope(self.experiment, measure))
        return self._analyses[measure.key]

    @cached_property
    def _analyses(self) -> dict[str, AnalysisData]:
        return {}

    def get_url(self, name: str, **query: Any) -> str:
        """Return the address of a page of this experiment."""
        address = reverse(name, args=[self.experiment.slug])
        return f"{address}?{urlencode(query)}" if query else address

    def get_trials_url(self, **filters: Any) -> str:
        """Return the address of the list of its trials with these filters."""
        return f"{reverse('trial_list')}?{urlencode({'experiment': self.experiment.slug, **filters})}"

    def get_analysis_url(self, measure: Measure, table: str) -> str:
        return f"{self.get_url('experiment_analysis', measure=measure.key)}#table-{table}"

    def count(self, name: str) -> int:
        """Return the sum of a counter of the design's runs, such as `n_done`."""
        return sum(int(getattr(run, name)) for run in self.runs)


def make_figure_block(source: ReportSource, figure: Figure, *, is_detail: bool = False, **query: str) -> FigureBlock:
    """Return a figure of the registry as a block. query: the choices with which the figures page shows the same."""
    svg, size = draw_picture(figure, plot_style.WIDE)
    narrow_svg, narrow_size = draw_picture(figure, plot_style.NARROW)
    address = reverse("experiment_figures", args=[source.experiment.slug])
    spec = f"{address}{'?' + urlencode(query) if query else ''}"
    content = figure.table().content()
    return FigureBlock(
        figure.name,
        figure.title,
        figure.caption,
        figure.alt,
        svg,
        size,
        content,
        spec,
        is_detail,
        narrow_svg,
        narrow_size,
    )


def draw_picture(figure: Figure, width: int) -> tuple[str, tuple[int, int]]:
    """Return the SVG of a figure, and its size in CSS pixels."""
    return plot_style.render_path_svg(lambda: figure.draw(width)), figure.size(width)
