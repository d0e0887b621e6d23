"""Experiments over parametric datasets, whose correct answers follow from the item."""

from grading_app.grading.scoring import grade
from runs_app.models import LanguageModel, Prompt, Sampler
from tests import factories
from tests.factories.parametric import make_parametric_dataset

SPACE = """
name: small
precision: {low: {count: %d}}
tasks:
  - name: brackets
    params: {length: [4, 8, 12], max_depth: [2, 4], kinds: [2, 3]}
  - name: swaps
    task: shuffle
    params: {length: [4, 5], max_depth: [2, 6]}
"""


def make_space_dataset(slug="reasoning", count=4, text=SPACE):
    """Create an approved dataset of 12 points of brackets and 4 of swaps (a shuffle), with `count` cases each."""
    return make_parametric_dataset(text % count if "%d" in text else text, slug)


def make_space_experiment(slug="space", *, dataset=None, models=("strong", "weak"), outcome=None, **fields):
    """Create an experiment with every trial graded. `outcome(item, model)` is right, wrong, unreadable or cut."""
    experiment = factories.make_experiment(
        slug, dataset=dataset or make_space_dataset(),
        models=[LanguageModel.objects.filter(name=name).first() or factories.make_model(name) for name in models],
        prompts=[Prompt.objects.filter(name="direct").first() or factories.make_prompt("direct")],
        samplers=[Sampler.objects.filter(name="greedy").first() or factories.make_sampler("greedy")],
        **{"scorers": ["final_answer"], "status": "active", **fields},
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        name = run.condition.model.name
        factories.plan_trials(
            run, answer=lambda item, *_, name=name: build_outcome_fields(item, (outcome or choose_outcome)(item, name))
        )
    grade(experiment, by="test")
    return experiment


def choose_outcome(item, model):
    """Return the outcome of a model: it is right up to a length, and the weak model only at the shortest one."""
    max_length = {"strong": 8, "weak": 4}.get(model, 6)
    length = item.metadata["params"]["length"]
    return "right" if length <= max_length else "cut" if item.metadata["number"] == 0 else "wrong"


def build_outcome_fields(item, outcome):
    if outcome is None:
        return None
    tokens = 20 + 10 * item.metadata["params"].get("length", 0) + item.metadata["number"]
    text = {"right": f"Final Answer: {item.target}", "wrong": "Final Answer: ((", "unreadable": "I do not know."}
    return {
        "answer": text.get(outcome, "Let me think about it"), "truncated": outcome == "cut",
        "finish_reason": "length" if outcome == "cut" else "stop", "output_tokens": tokens,
    }  # fmt: skip
