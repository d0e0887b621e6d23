"""A parametric study end to end: a worker process, the simulated provider with skill profiles, rules of the space."""

import json

import pytest
from django.core.management import call_command

from grading_app.grading.consistency_check import find_differences
from grading_app.results.parametric.surface import list_recovered_cells
from runs_app import run_control
from runs_app.models import Point, Run
from runs_app.planning.parametric_spaces import read_space_rules
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from runs_app.simulator.skill_profiles import read_profiles
from tests import factories
from tests.factories.parametric import make_parametric_dataset
from tests.system.processes.workers import drain_process

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
SPACE = """
name: study
precision: {some: {count: 16, targetci: 0.12, maximum: 96}}
tasks:
  - name: arithmetic
    params: {length: [4, 12, 20]}
  - name: shuffle
    params: {length: [3, 6]}
    targetci: 0.2
  - name: boolean
    params: {length: [4, 8]}
    maximum: 48
"""
PROFILES = {
    "sharp": {"*": {"start": 4, "falls": {"length": 0.1}, "tokens": 30, "grows": {"length": 0.05}}},
    "dull": {"*": {"start": 1, "falls": {"length": 0.1}, "tokens": 20}},
}


def test_a_space_follows_its_sampling_rules_and_its_intervals_cover_the_true_values(tmp_path, capsys):
    dataset = make_parametric_dataset(SPACE)
    answers, profiles = tmp_path / "answers.jsonl", tmp_path / "profiles.json"
    call_command("dataset", "answers", str(dataset))
    answers.write_text(capsys.readouterr().out)
    profiles.write_text(json.dumps(PROFILES))
    with simulator_process(SimulatorConfig(answers=(answers,), profiles=(profiles,))) as provider:
        endpoint = factories.make_endpoint("rehearsal", base_url=provider.url, max_concurrency=64)
        experiment = factories.make_experiment(
            "study",
            dataset=dataset,
            models=[factories.make_model(name, endpoint=endpoint, model=name) for name in PROFILES],
            samplers=[factories.make_sampler("short", max_tokens=80)],
            adaptive=read_space_rules(dataset),
            scorers=["final_answer"],
            max_usd=None,
            cache=False,
        )
        run_control.launch(experiment, by=experiment.owner)
        with drain_process() as worker:
            assert worker.wait(timeout=300) == 0
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}
    targets = {"arithmetic": (0.12, 96), "shuffle": (0.2, 96), "boolean": (0.12, 48)}
    for point in Point.objects.all():
        target, maximum = targets[point.key["task"]]
        assert point.status in ("enough", "exhausted")
        assert (point.status == "enough") == (point.half_width <= target)
        assert point.n_planned <= maximum
        assert point.reason
    assert find_differences() == []
    cells = list_recovered_cells(experiment, read_profiles(profiles))
    assert len(cells) == 14
    assert sum(bool(cell.covers) for cell in cells) >= 11
    assert any(cell.tally.truncated for cell in cells)
