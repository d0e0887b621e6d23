"""The results of an experiment as facts of a snapshot: each number with its interval and the method."""

from __future__ import annotations

from typing import Any

from grading_app.results.frames import load_frames
from grading_app.statistics.correlation import pearson
from runs_app.models import Experiment

CONFIDENCE = 0.95
TOO_FEW = "too few items"
NUMBERS = ("n", "items", "mean", "sd", "se", "low", "high", "effective_n", "method", "reason")


def build_result_facts(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers of the results page.

    scores: a mean or share for each measure and condition. norms: the correlation of a condition's means with the
    norms, by dimension.
    """
    frames = load_frames(experiment)
    scores = [
        {
            "measure": line.measure.label,
            "condition": line.condition,
            "is_share": line.measure.is_share,
            "unread": line.score.missing,
            **{name: getattr(line.score, name) for name in NUMBERS},
        }
        for line in frames.lines
    ]
    pairs: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for pair in frames.norm_pairs:
        pairs.setdefault((pair.condition, pair.dimension), []).append((pair.model_mean, pair.human_mean))
    facts = []
    for (condition, dimension), means in pairs.items():
        models, humans = zip(*means, strict=True)
        r = pearson(models, humans)
        has_ends = r is not None and r.low is not None
        facts.append(
            {
                "dimension": frames.dimensions[dimension].title,
                "condition": frames.labels[condition],
                "items": len(means),
                "r": r.r if r else None,
                "low": r.low if r else None,
                "high": r.high if r else None,
                "difference": sum(models) / len(models) - sum(humans) / len(humans),
                "method": f"{r.method} over items" if r and has_ends else "",
                "reason": "" if has_ends else TOO_FEW if len(means) < 4 else "no variance",
            }
        )
    return {"confidence": CONFIDENCE, "scores": scores, "norms": facts}
