"""Builders of rows for tests. Each name means one thing in all of them.

Every function makes rows that the product itself could have made: datasets are approved after their items are in,
prompts and samplers are approved, the counters of a run equal its trials. Here are the builders of any experiment; the
modules beside hold those of one subject: drafts, batches, the engine, judges, gradings, rating queues, recordings.
"""

from tests.factories.datasets import approve, make_dataset, plain_question
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
    answered,
    failed,
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
    "answered",
    "approve",
    "failed",
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
    "plain_question",
    "plan_trials",
    "refresh_counters",
]
