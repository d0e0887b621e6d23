"""An experiment whose answers were rated by a rule and by judges."""

from grading_app.models import GradeCondition, Grading, Rubric
from tests import factories


def make_answers(slug="pilot", *, items=12, models=("small",), samples=1, dimensions=(), **fields):
    """Every trial done: its answer names the item, and where items are rated, its rating goes up with the item."""
    experiment = factories.make_experiment(
        slug, dataset=factories.make_dataset(f"{slug}-items", items), samples=samples, dimensions=dimensions,
        models=[factories.make_model(name) for name in models], **fields,
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=answer)
    return experiment


def answer(item, dimension, sample_idx):
    given = {"answer": f"About {item.key}, said for the {sample_idx + 1}. time."}
    return {**given, "rating": 1 + (item.position + sample_idx) % 7} if dimension else given


def trials_of(experiment):
    trials = type(experiment).objects.get(pk=experiment.pk).runs.generating()
    return [trial for run in trials for trial in run.trials.select_related("item").order_by("pk")]


def said_in(frame):
    """(item, rater, value), as often as units were rated like that."""
    return sorted(
        (item, rater, value)
        for item, kind, n in frame.lines
        for rater, value in frame.kinds[kind].items()
        for _ in range(n)
    )


def make_rubric(name="standard", *, low=1, high=7, **fields):
    defaults = {"messages": [{"role": "user", "content": "{{answer}}"}], "scale_min": low, "scale_max": high, **fields}
    return Rubric.objects.get_or_create(name=name, defaults=defaults)[0]


def graded(experiment, name, score, *, kind="judge", rubric=None, reasoning=""):
    """A grade condition with a grading of each done answer; `score(trial)` may be None: it could not be read."""
    scorer = name if kind == "rule" else ""
    rubric = make_rubric() if kind == "judge" and rubric is None else rubric
    condition = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id=f"{name}--{len(name):012x}", kind=kind, scorer=scorer, rubric=rubric
    )
    made = []
    for trial in trials_of(experiment):
        value = score(trial)
        read = {"parse_ok": True} if value is not None else {"parse_ok": False, "parse_error": "no_score_in_json"}
        made.append(Grading(trial=trial, condition=condition, score=value, reasoning=reasoning, **read))
    Grading.objects.bulk_create(made)
    return condition
