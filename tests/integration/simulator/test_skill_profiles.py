"""Skill profiles: simulated models match the accuracy, truncation rate and answer patterns of their profile."""

import json
import math

import pytest
from django.core.management import CommandError, call_command

from datasets_app.generators.registry import get_generator
from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.items import draw_cases
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from grading_app.grading.scoring import grade
from runs_app.models import Trial
from runs_app.simulator.config import ConfigError
from runs_app.simulator.known_answers import AnswerKey
from runs_app.simulator.model_behaviour import Answerer
from runs_app.simulator.request_parser import read_chat
from runs_app.simulator.responses import Reply, count_tokens
from runs_app.simulator.skill_profiles import parse_profiles, read_profiles
from tests import factories

PROFILES = {
    "sharp": {"*": {"start": 3, "falls": {"length": 0.1}, "tokens": 40, "grows": {"length": 0.05}, "spread": 0.4}},
    "dull": {
        "*": {"start": 1, "falls": {"length": 0.1}},
        "boolean": {"start": 1, "falls": {"length": 0.15, "format": {"T_F": 1}}},
    },
}
SPACE = """
name: recovery
precision: {all: {count: 60}}
tasks:
  - name: arithmetic
    params: {length: [8, 16, 24, 32]}
  - name: boolean
    params: {length: [6, 12, 18], format: [TRUE_FALSE, T_F]}
  - name: shuffle
    params: {length: [3, 6, 9, 12]}
"""


def make_profiled_answerer(cases, task, profiles=PROFILES):
    """Return an answerer whose key contains these cases of a task."""
    key = AnswerKey()
    for params, case in cases:
        key.add({"text": case.input, "target": case.target, "task": task, "params": params,
                 "choices": list(case.choices or ())})  # fmt: skip
    return Answerer(1, {}, key, profiles=parse_profiles(profiles))


def ask(models, text, model="sharp", **more):
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    request = read_chat(json.dumps(body).encode())
    return Reply(models.answer(request).content).truncate(request.max_tokens)


def draw_some_cases(task, params, count):
    return [(params, case) for case, _ in zip(draw_cases(task, params), range(count), strict=False)]


@pytest.mark.parametrize("task", ["arithmetic", "boolean", "brackets", "cars", "dates", "letters", "movies", "objects",
                                  "sequence", "shapes", "shuffle", "sort", "tables"])  # fmt: skip
def test_every_correct_or_wrong_answer_matches_the_answer_pattern_of_its_task(task):
    cases = draw_some_cases(task, {}, 60)
    models = make_profiled_answerer(cases, task, {"even": {"*": {"start": 0, "tokens": 60}}})
    rule = get_generator(task).answer
    readings = [(rule.read(ask(models, case.input, "even").content, case.choices), case) for _, case in cases]
    assert all(reading.valid for reading, _ in readings)
    right = sum(rule.is_correct(reading, case.target) for reading, case in readings)
    assert 0 < right < 60


def test_accuracy_is_the_skill_plus_correct_guesses():
    params = {"length": 6, "format": "T_F"}
    cases = draw_some_cases("boolean", params, 2000)
    distinct = list({case.input: (params, case) for _, case in cases}.values())
    rule, models = get_generator("boolean").answer, make_profiled_answerer(distinct, "boolean")
    right = sum(rule.is_correct(rule.read(ask(models, one.input, "dull").content, one.choices), one.target)
                for _, one in distinct)  # fmt: skip
    skill = 1 / (1 + math.exp(-(1 - 0.15 * 6 - 1)))
    expected, n = skill + (1 - skill) / 2, len(distinct)
    assert n > 1000
    assert abs(right / n - expected) < 4 * math.sqrt(expected * (1 - expected) / n)


def test_the_truncation_rate_matches_the_profile():
    limit = 100
    for length in (8, 16, 24):
        params = {"length": length}
        cases = draw_some_cases("arithmetic", params, 600)
        models = make_profiled_answerer(cases, "arithmetic")
        share_cut = sum(ask(models, case.input, max_tokens=limit).finish_reason == "length" for _, case in cases) / 600
        expected = parse_profiles(PROFILES)["sharp"].truncation("arithmetic", params, limit)
        assert abs(share_cut - expected) < 4 * math.sqrt(expected * (1 - expected) / 600) + 1e-9, length
    assert parse_profiles(PROFILES)["sharp"].truncation("arithmetic", {"length": 24}, limit) > 0.3


def test_an_answer_has_the_drawn_number_of_tokens():
    cases = draw_some_cases("arithmetic", {"length": 8}, 50)
    models = make_profiled_answerer(cases, "arithmetic", {"sharp": {"*": {"tokens": 80, "spread": 0}}})
    assert {count_tokens(ask(models, case.input).content) for _, case in cases} == {80}


def test_a_repeated_request_gets_the_same_answer_and_another_seed_can_change_it():
    cases = draw_some_cases("arithmetic", {"length": 8}, 1)
    models = make_profiled_answerer(cases, "arithmetic", {"sharp": {"*": {"start": 0, "tokens": 50}}})
    text = cases[0][1].input
    assert ask(models, text).content == ask(models, text).content
    assert len({ask(models, text, seed=seed).content for seed in range(20)}) > 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([], "the file: must be an object"),
        ({"sharp": {"*": {"strat": 1}}}, "sharp.*.strat: unknown key; choose start, falls, tokens, grows, spread"),
        ({"sharp": {"*": {"falls": {"length": "x"}}}}, "sharp.*.falls.length: must be a number"),
        ({"sharp": {"*": {"tokens": -1}}}, "sharp.*.tokens: must be 0 or more, not -1"),
    ],
)
def test_an_invalid_profile_is_refused_with_its_key(content, named, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        read_profiles(path)
    assert str(caught.value) == f"{path}: {named}"


def build_dataset(count):
    text = SPACE.replace("60", str(count))
    dataset = create_parametric_dataset(resolve_space(read_space(text)), SpaceFiles(text), slug="recovery", by="test")
    factories.approve(dataset)
    return dataset


def design_experiment(dataset):
    return factories.make_experiment(
        "recovery",
        dataset=dataset,
        models=[factories.make_model(name, model=name) for name in PROFILES],
        samplers=[factories.make_sampler("short", max_tokens=120)],
        scorers=["final_answer"],
    )


@pytest.fixture
def small_experiment(db):
    return design_experiment(build_dataset(1))


@pytest.fixture
def recovered_experiment(db):
    """Return a graded experiment over a space, answered by two models with profiles within 120 tokens."""
    dataset = build_dataset(60)
    key = AnswerKey()
    for row in dataset.iterate_answer_key():
        key.add(row)
    models = Answerer(3, {}, key, profiles=parse_profiles(PROFILES))
    made = design_experiment(dataset)
    for run in factories.make_runs(made, status="done"):
        name = run.condition.model.model
        factories.plan_trials(run, answer=lambda item, *_, name=name: build_stored_fields(ask(models, item.input, name,
                                                                                 max_tokens=120)))  # fmt: skip
    grade(made, by="test")
    return made


def build_stored_fields(reply):
    return {"answer": reply.content, "finish_reason": reply.finish_reason, "truncated": reply.finish_reason == "length",
            "output_tokens": count_tokens(reply.content)}  # fmt: skip


@pytest.mark.slow
def test_the_intervals_of_an_experiment_cover_the_true_surface(recovered_experiment, tmp_path, capsys):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILES))
    assert Trial.objects.filter(truncated=True).exists()
    call_command("skill_surface", path, "--experiment", "recovery", "--format", "json")
    table = json.loads(capsys.readouterr().out)
    assert len(table["rows"]) == 2 * 14
    covered = sum(row["covers"] == "yes" for row in table["rows"])
    assert covered >= 24  # In 1 of 100 experiments, fewer of 28 intervals of 95 % cover the truth.
    assert table["sentence"] == f"{covered} of 28 intervals contain the true accuracy."
    for row in table["rows"]:
        n = row["n"] / (1 - row["truncated"]) if row["truncated"] < 1 else 60
        assert abs(row["truncated"] - row["truncation"]) < 4.5 * math.sqrt(max(row["truncation"], 0.02) / n)


def test_the_true_surface_is_printed_for_each_point_of_a_dataset(small_experiment, tmp_path, capsys):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILES))
    call_command("skill_surface", path, "--dataset", "recovery@1", "--max-tokens", "120", "--format", "json")
    rows = json.loads(capsys.readouterr().out)["rows"]
    truth = {(row["model"], row["task"], row["params"]): row["skill"] for row in rows}
    assert len(truth) == 28
    assert truth["dull", "boolean", "format T_F, length 6"] == pytest.approx(1 / (1 + math.exp(0.9)))
    assert truth["dull", "shuffle", "length 3"] == pytest.approx(1 / (1 + math.exp(-0.7)))


def test_a_profile_without_a_model_of_the_experiment_is_refused(small_experiment, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('{"other": {"*": {}}}')
    with pytest.raises(CommandError, match="no case of a parametric task matches a model"):
        call_command("skill_surface", path, "--experiment", "recovery")


def test_the_answer_key_of_a_dataset_is_read_by_the_provider(small_experiment, tmp_path, capsys):
    call_command("dataset", "answers", "recovery")
    path = tmp_path / "answers.jsonl"
    path.write_text(capsys.readouterr().out)
    key = AnswerKey.read([path])
    item = small_experiment.dataset.items.get(key="shuffle_length-6-0")
    request = read_chat(json.dumps({"model": "a", "messages": [{"role": "user", "content": item.input}]}).encode())
    _, case = key.find_case(request)
    assert (case.target, case.task, case.params) == (item.target, "shuffle", {"length": 6})
    assert list(case.choices) == item.choices
