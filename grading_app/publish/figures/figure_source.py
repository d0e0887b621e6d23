"""The data that an experiment's figures read, each part loaded when the first figure needs it."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from django.http import QueryDict

from evalsite.lib.text.names import UnknownNameError
from grading_app.results.analysis.stored import get_analysis
from grading_app.results.answer_aggregates import fingerprint_results
from grading_app.results.frames import Frames, get_frames
from grading_app.results.leaderboard import BoardQuery, Leaderboard
from grading_app.results.scope import Scope, ScopeForm
from grading_app.results.scores import Measure, list_measures, match_measure
from grading_app.results.stored_results import get_leaderboard
from grading_app.results.stored_scores import get_item_scores
from grading_app.results.table import ResultTable
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment, Wave

T = TypeVar("T")


class FigureSource:
    """The data of an experiment's figures for the choices in an address: wave, measure, second dimension, images.

    Values that a worker computes are None until it has; `is_waiting` says so.
    """

    def __init__(self, experiment: Experiment, data: QueryDict | None = None, wave: Wave | None = None) -> None:
        self.experiment, self.data = experiment, data or QueryDict()
        self.wave = wave or self._find_wave()
        self.is_waiting = False

    def _find_wave(self) -> Wave | None:
        """Return the wave in the address; None for all waves, and for a wave that the experiment does not have."""
        try:
            wave: Wave | None = self.experiment.find_wave(name) if (name := self.data.get("wave", "")) else None
        except UnknownNameError:
            return None
        return wave

    @cached_property
    def state(self) -> str:
        return fingerprint_results(self.experiment, self.wave)

    @cached_property
    def frames(self) -> Frames:
        return get_frames(self.experiment, self.wave, self.state)

    @cached_property
    def board(self) -> Leaderboard | None:
        return self._note_missing(get_leaderboard(BoardQuery(self.experiment, self.wave)))

    @cached_property
    def measures(self) -> list[Measure]:
        return list_measures(self.experiment)

    @cached_property
    def measure(self) -> Measure | None:
        """The measure in the address, or the first one; None if the experiment does not have it."""
        if name := self.data.get("measure", ""):
            try:
                return match_measure(self.measures, name)
            except UnknownNameError:
                return None
        return next(iter(self.measures), None)

    @cached_property
    def scope(self) -> Scope | None:
        form = ScopeForm(self.data, self.experiment)
        return form.get_scope()

    @cached_property
    def tables(self) -> dict[str, ResultTable]:
        """The tables of the analysis by name: of the sections that a worker has computed."""
        if self.scope is None:
            return {}
        analysis = get_analysis(self.scope)
        self._note_missing(analysis if analysis.is_complete else None)
        return {table.name: table for section_tables in analysis.tables.values() for table in section_tables}

    def get_scores(self, measure: Measure) -> ItemScores | None:
        stored_scores = self._note_missing(get_item_scores(self.experiment, measure, self.wave).value)
        return stored_scores.scores if stored_scores else None

    def _note_missing(self, value: T | None) -> T | None:
        self.is_waiting = self.is_waiting or value is None
        return value
