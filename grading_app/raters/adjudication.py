"""Adjudication: a person's final score of an answer, with a reason.

A correction adds another row. The last row counts.
"""

from __future__ import annotations

import math
from typing import Any

from django.db import transaction

from evalsite.lib.history import record_changes
from evalsite.lib.permissions import CURATOR, get_roles
from evalsite.lib.text.hashing import build_condition_id
from grading_app.models import Adjudication, GradeCondition, Grading
from grading_app.models.scales import Scale
from grading_app.models.verdict_history import allow_superseding
from runs_app.models import Experiment, Trial

MAX_REASON_LENGTH = 4_000


class AdjudicationError(ValueError):
    """A score that cannot be stored. The message says why. Nothing was changed."""


def may_adjudicate(user: Any, experiment: Experiment) -> bool:
    """Return True for people who may change the experiment, and for curators.

    The caller must have checked that the user may see the experiment.
    """
    return CURATOR in get_roles(user) or Experiment.objects.editable_by(user).filter(pk=experiment.pk).exists()


@transaction.atomic
def adjudicate(trial: Trial, *, scale: Scale, score: float, reason: str, by: Any) -> Adjudication:
    """Store the final score of this answer on this scale, for the first time or again.

    Raise AdjudicationError if the score, the reason or the answer is not valid.
    """
    if not math.isfinite(score) or not scale.low <= score <= scale.high:
        raise AdjudicationError(f"The score must be on the scale from {scale}.")
    if not reason.strip():
        raise AdjudicationError("Enter a reason. It is stored with the score.")
    if trial.status != Trial.Status.DONE or trial.run.condition.stage != "generate":
        raise AdjudicationError("Only completed answers can be adjudicated.")
    # The grade condition of adjudicated scores on this scale, with its row locked. The lock makes the later of two
    # concurrent adjudications count.
    ends = {"scale_min": scale.low, "scale_max": scale.high}
    condition, _ = GradeCondition.objects.get_or_create(
        experiment=trial.run.experiment,
        grade_condition_id=build_condition_id("adjudicated", {"kind": "adjudicated", **ends}),
        defaults={"kind": GradeCondition.Kind.ADJUDICATED, "parameters": ends},
    )
    condition = GradeCondition.objects.select_for_update().get(pk=condition.pk)
    adjudication = Adjudication.objects.create(
        condition=condition, trial=trial, score=score, reason=reason.strip()[:MAX_REASON_LENGTH], by=by
    )
    earlier = Grading.objects.filter(condition=condition, trial=trial).first()
    fields = {
        "score": score,
        "score_raw": f"{score:.15g}",
        "parse_ok": True,
        "reasoning": adjudication.reason,
        "created_at": adjudication.at,  # A correction has the time of the decision that counts.
    }
    with allow_superseding():
        Grading.objects.update_or_create(condition=condition, trial=trial, defaults=fields)
    previous = "" if earlier is None else f"{earlier.score:g}"
    record_changes([(trial.run.experiment, previous, f"trial {trial.pk}: {score:g}")], by=by,
                   reason=adjudication.reason[:500], aspect="gradings")  # fmt: skip
    return adjudication
