"""The surface that an experiment estimates, compared with the true surface of simulated models with skill profiles.

Each cell is a point of a parametric task in one condition. Its interval is of the accuracy beyond guessing. The true
value is the skill of the model's profile at this point (`runs_app/simulator/skill_profiles.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from datasets_app.models import Dataset
from evalsite.lib.sql import open_raw_cursor
from evalsite.lib.stats import Interval
from grading_app.models import GradeCondition
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Experiment
from runs_app.simulator.skill_profiles import ModelProfile
from runs_app.stopping.rules import Tally

SCORER = "final_answer"
CONFIDENCE = 0.95
ROUNDING = 1e-9

COUNTS = """
SELECT c.condition_id, m.model, s.max_tokens, i.metadata ->> 'task', i.metadata ->> 'params',
    count(*) FILTER (WHERE g.score = 1)::int, count(*) FILTER (WHERE g.score IS NOT NULL)::int,
    count(*) FILTER (WHERE t.truncated OR g.parse_error = 'truncated')::int,
    coalesce(sum((i.metadata ->> 'guess_chance')::float8) FILTER (WHERE g.score IS NOT NULL), 0)::float8
FROM runs_app_trial t
JOIN runs_app_run r ON r.id = t.run_id
JOIN runs_app_condition c ON c.id = r.condition_id AND c.stage = 'generate'
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_sampler s ON s.id = c.sampler_id
JOIN datasets_app_item i ON i.id = t.item_id
LEFT JOIN grading_app_grading g ON g.trial_id = t.id AND g.condition_id = %(rule)s
WHERE r.experiment_id = %(experiment)s AND t.status = 'done' AND i.metadata ? 'params'
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, min(i.position)
"""


@dataclass(frozen=True, slots=True)
class RecoveredCell:
    """One point in one condition: its counts, and the true values from the profile.

    skill: the true accuracy beyond guessing. truncation: the true share of truncated answers.
    """

    condition: str
    model: str
    task: str
    params: Mapping[str, Any]
    tally: Tally
    skill: float
    truncation: float

    @property
    def interval(self) -> Interval | None:
        """The interval of the accuracy beyond guessing; None without scored answers."""
        return self.tally.interval(CONFIDENCE) if self.tally.total else None

    @property
    def covers(self) -> bool | None:
        """True if the interval contains the true accuracy; None without an interval."""
        interval = self.interval
        return None if interval is None else interval.low - ROUNDING <= self.skill <= interval.high + ROUNDING


def list_recovered_cells(experiment: Experiment, profiles: Mapping[str, ModelProfile]) -> list[RecoveredCell]:
    """Return the cells of the models that have a profile, by the newest grader with the scorer `final_answer`."""
    rule = experiment.grade_conditions.filter(kind=GradeCondition.Kind.RULE, scorer=SCORER).order_by("-pk").first()
    with open_raw_cursor() as cursor:
        cursor.execute(COUNTS, {"experiment": experiment.pk, "rule": rule.pk if rule else None})
        rows = cursor.fetchall()
    return list(_recover_cells(rows, profiles))


def _recover_cells(rows: list[tuple[Any, ...]], profiles: Mapping[str, ModelProfile]) -> Iterator[RecoveredCell]:
    for condition, model, max_tokens, task, text, correct, total, truncated, guesses in rows:
        profile, params = profiles.get(model), json.loads(text)
        skill = profile.skill(task, params) if profile else None
        if profile is None or skill is None:
            continue
        tally = Tally(correct, total, truncated, min(float(total), guesses))
        truncation = profile.truncation(task, params, max_tokens) or 0.0
        yield RecoveredCell(condition, model, task, params, tally, skill, truncation)


def make_recovery_table(experiment: Experiment, profiles: Mapping[str, ModelProfile]) -> ResultTable:
    """Return the cells with their true values, and how many intervals contain the true accuracy."""
    cells = list_recovered_cells(experiment, profiles)
    covers = [cell.covers for cell in cells if cell.covers is not None]
    sentence = f"{sum(covers):,} of {len(covers):,} intervals contain the true accuracy."
    return ResultTable(
        name="recovery",
        title=f"Recovered surface of {experiment.slug}",
        columns=[
            ResultColumn("condition", "Condition"),
            ResultColumn("task", "Task"),
            ResultColumn("params", "Parameters"),
            ResultColumn("n", "n", "count"),
            ResultColumn("interval", "Accuracy beyond guessing, 95 %", "share_interval"),
            ResultColumn("skill", "True", "share"),
            ResultColumn("covers", "Contains it"),
            ResultColumn("truncated", "Cut off", "share"),
            ResultColumn("truncation", "True", "share"),
        ],
        rows=[_make_row(cell) for cell in cells],
        sentence=sentence if covers else "No cell has a scored answer.",
        formula="Wilson's interval of the answers, mapped by (p - g) / (1 - g), where g is the mean guess chance.",
    )


def _make_row(cell: RecoveredCell) -> dict[str, Any]:
    interval = cell.interval
    return {
        "condition": cell.condition,
        "task": cell.task,
        "params": _describe_params(cell.params),
        "n": cell.tally.total,
        "interval": (interval.low, interval.high) if interval else None,
        "skill": cell.skill,
        "covers": None if cell.covers is None else "yes" if cell.covers else "no",
        "truncated": cell.tally.truncation,
        "truncation": cell.truncation,
    }


def make_truth_table(dataset: Dataset, profiles: Mapping[str, ModelProfile], max_tokens: int | None) -> ResultTable:
    """Return the true surface of every profile, over the points of a dataset."""
    points = [] if not hasattr(dataset, "parametric_space") else dataset.parametric_space.read_definition()["points"]
    rows = [
        {
            "model": model,
            "task": point["base_task"],
            "params": _describe_params(point["params"]),
            "skill": skill,
            "truncation": profile.truncation(point["base_task"], point["params"], max_tokens),
        }
        for model, profile in profiles.items()
        for point in points
        if (skill := profile.skill(point["base_task"], point["params"])) is not None
    ]
    return ResultTable(
        name="truth",
        title=f"True surface over {dataset}",
        columns=[
            ResultColumn("model", "Model"),
            ResultColumn("task", "Task"),
            ResultColumn("params", "Parameters"),
            ResultColumn("skill", "Accuracy beyond guessing", "share"),
            ResultColumn("truncation", "Cut off", "share"),
        ],
        rows=rows,
    )


def _describe_params(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(params.items()))
