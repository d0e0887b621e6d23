"""Experiments whose answers were graded by a rule and by judges."""

from grading_app.models import GradeCondition, Grading, Rubric
from tests import factories


def make_answered_experiment(slug="pilot", *, items=12, models=("small",), samples=1, dimensions=(), **fields):
    """Complete every trial: its answer names the item, and ratings increase with the item's position."""
    experiment = factories.make_experiment(
        slug, dataset=factories.make_dataset(f"{slug}-items", items), samples=samples, dimensions=dimensions,
        models=[factories.make_model(name) for name in models], **fields,
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=build_numbered_answer)
    return experiment


def build_numbered_answer(item, dimension, sample_idx):
    fields = {"answer": f"About {item.key}, said for the {sample_idx + 1}. time."}
    return {**fields, "rating": 1 + (item.position + sample_idx) % 7} if dimension else fields


def list_generated_trials(experiment):
    """Return the generated trials of the experiment, in the order of its runs."""
    trials = type(experiment).objects.get(pk=experiment.pk).answer_runs
    return [trial for run in trials for trial in run.trials.select_related("item").order_by("pk")]


def expand_counts(counts):
    """Return a sorted list of (item, rater, value), each as often as it occurs."""
    return sorted(
        (item, rater, value)
        for item, pattern, n in counts.counts
        for rater, value in counts.patterns[pattern].items()
        for _ in range(n)
    )


def make_scale_rubric(name="standard", *, low=1, high=7, **fields):
    """Create or return a draft rubric that shows only the answer. The same name returns the same row."""
    defaults = {"messages": [{"role": "user", "content": "{{answer}}"}], "scale_min": low, "scale_max": high, **fields}
    return Rubric.objects.get_or_create(name=name, defaults=defaults)[0]


def make_gradings(experiment, name, score, *, kind="judge", rubric=None, reasoning=""):
    """Create a grade condition with a grading of each trial. `score(trial)` is None for an unreadable verdict."""
    scorer = name if kind == "rule" else ""
    rubric = make_scale_rubric() if kind == "judge" and rubric is None else rubric
    condition = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id=f"{name}--{len(name):012x}", kind=kind, scorer=scorer, rubric=rubric
    )
    gradings = []
    for trial in list_generated_trials(experiment):
        value = score(trial)
        parsing = {"parse_ok": True} if value is not None else {"parse_ok": False, "parse_error": "no_score_in_json"}
        gradings.append(Grading(trial=trial, condition=condition, score=value, reasoning=reasoning, **parsing))
    Grading.objects.bulk_create(gradings)
    return condition


APPLE_ITEMS = 5


APPLE_STEPS = "First, the boxes hold {n} each. There are three of them, and one is half empty.\nSo there are {n} left."


def make_apple_answers(owner):
    """Create answers for people to rate: of two models to five questions about apples."""
    items = [
        {**factories.build_question(n), "input": f"Three boxes hold {n} apples each. How many apples are there?"}
        for n in range(APPLE_ITEMS)
    ]
    experiment = factories.make_experiment(
        "apples", owner=owner, dataset=factories.make_dataset("apples", items), status="active",
        models=[factories.make_model(name) for name in ("sim-large", "sim-small")],
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=lambda item, *_: APPLE_STEPS.format(n=item.position))
    return experiment
