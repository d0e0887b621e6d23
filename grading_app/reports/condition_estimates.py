"""The estimate of each measure under each condition as plain values, for the command `status`."""

from __future__ import annotations

from typing import Any

from grading_app.reports import statistic_format
from grading_app.reports.frames import labels_of
from grading_app.reports.score_matrix import list_measures, load_item_scores
from grading_app.statistics.intervals import SHARE_BOUNDS, estimate_mean
from runs_app.models import Condition, Experiment


def estimate_conditions(experiment: Experiment) -> list[dict[str, Any]]:
    """Return a record for each measure and condition with a score: n, mean or share, and its 95 % interval.

    `low` and `high` are None without an interval; then `reason` says why. `text` is the estimate for people.
    """
    labels = labels_of(experiment)
    names = dict(Condition.objects.filter(pk__in=labels).values_list("pk", "condition_id"))
    records = []
    for measure in list_measures(experiment):
        scores = load_item_scores(experiment, measure)
        bounds = None if measure.low is None or measure.high is None else (measure.low, measure.high)
        is_share = scores.is_binary and bounds in (None, SHARE_BOUNDS)
        missing = dict(zip(scores.conditions.tolist(), scores.missing.sum(axis=0).tolist(), strict=True))
        for key, label in labels.items():
            found = estimate_mean(scores.sums(key), SHARE_BOUNDS if is_share else bounds)
            if found is None:
                continue
            records.append(
                {
                    "measure": measure.key,
                    "label": measure.label,
                    "condition_id": names[key],
                    "condition": label,
                    "is_share": is_share,
                    "n": found.n,
                    "items": found.clusters,
                    "missing": missing[key],
                    "mean": found.mean,
                    "low": found.low,
                    "high": found.high,
                    "method": found.method,
                    "reason": found.reason,
                    "text": _text(found.mean, found.low, found.high, is_share),
                }
            )
    return records


def _text(mean: float, low: float | None, high: float | None, is_share: bool) -> str:
    middle = statistic_format.per_cent(mean) if is_share else statistic_format.number(mean)
    if low is None:
        return middle
    ends = statistic_format.per_cent_interval if is_share else statistic_format.interval
    return f"{middle} [{ends(low, high)}]"
