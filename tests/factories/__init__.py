"""Builders of rows for tests. Each name has one meaning in all tests.

Every function creates rows that the site itself could have created: datasets are approved after their items are added,
prompts and samplers are approved, the counters of a run equal its trials. The package exports the builders of
experiments. Its modules have the builders of one subject each, such as drafts, batches, judges and rating queues.
"""

from tests.factories.datasets import approve, build_question, make_dataset
from tests.factories.designs import (
    make_dimension,
    make_endpoint,
    make_experiment,
    make_model,
    make_preflight,
    make_prompt,
    make_sampler,
)
from tests.factories.people import NOON, Team, make_team, make_user
from tests.factories.runs import (
    build_done_fields,
    build_failed_fields,
    make_attempt,
    make_condition,
    make_conditions,
    make_runs,
    make_wave,
    plan_trials,
    refresh_counters,
)

__all__ = [
    "NOON",
    "Team",
    "approve",
    "build_done_fields",
    "build_failed_fields",
    "build_question",
    "make_attempt",
    "make_condition",
    "make_conditions",
    "make_dataset",
    "make_dimension",
    "make_endpoint",
    "make_experiment",
    "make_model",
    "make_preflight",
    "make_prompt",
    "make_runs",
    "make_sampler",
    "make_team",
    "make_user",
    "make_wave",
    "plan_trials",
    "refresh_counters",
]
