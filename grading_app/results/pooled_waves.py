"""The waves that numbers over all waves pool, and the scores that differ between them."""

from __future__ import annotations

from dataclasses import dataclass

from grading_app.results import answer_aggregates, statistic_format
from grading_app.results.frame_cache import get_wave_comparison
from grading_app.results.waves import WaveChange
from runs_app.models import Experiment, Wave


@dataclass(frozen=True, slots=True)
class PooledWaves:
    """The waves of an experiment that numbers without a chosen wave pool.

    drifted: the scores that differ between the first and the last wave after Holm's correction; None if the experiment
    is too large to test them during a request.
    """

    waves: list[Wave]
    drifted: list[WaveChange] | None

    @property
    def sentences(self) -> list[str]:
        """Say what is pooled, and whether the first and the last wave differ."""
        names = ", ".join(map(str, self.waves))
        pooled = f"These numbers pool {len(self.waves)} waves: {names}."
        first, last = self.waves[0], self.waves[-1]
        if self.drifted is None:
            return [pooled]
        if not self.drifted:
            return [pooled, f"No score differs significantly between {first} and {last}."]
        changes = "; ".join(map(_describe_change, self.drifted[:3]))
        more = f"; and {len(self.drifted) - 3} more" if len(self.drifted) > 3 else ""
        return [pooled, f"Scores changed significantly from {first} to {last}: {changes}{more}."]


def find_pooled_waves(experiment: Experiment, wave: Wave | None, *, in_worker: bool = False) -> PooledWaves | None:
    """Return the waves that numbers of this wave (None: of all) pool; None if they pool fewer than two.

    in_worker: compare the waves however many answers they have.
    """
    waves = list(experiment.waves.answered())
    if wave is not None or len(waves) < 2:
        return None
    if not in_worker and answer_aggregates.has_many_answers(experiment, None):
        return PooledWaves(waves, None)
    return PooledWaves(waves, get_wave_comparison(experiment, waves[0], waves[-1]).drifted)


def _describe_change(line: WaveChange) -> str:
    first, last = (statistic_format.format_mean(mean, line.measure.is_share) for mean in (line.mean_a, line.mean_b))
    means = f"{first} to {last}"
    return f"{line.measure.label}, {line.condition or 'all conditions'}, {means}"
