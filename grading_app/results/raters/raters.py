"""The raters of an experiment: rules, judges, panels, people, the models themselves, and the norms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db.models import Q

from datasets_app.models import Norm
from grading_app.models import GradeCondition, RaterAssignment, RatingQueue, Rubric
from grading_app.models.rubrics import CHOICE, Scale
from runs_app.models import Dimension, Experiment
from runs_app.models.conditions import make_condition_labels

Kind = Literal["rule", "judge", "panel", "adjudicated", "person", "norm", "model"]
ANSWERS, PAIRS = "answers", "pairs"
CRITERION = "criterion:"
KIND_LABELS: dict[Kind, str] = {
    "rule": "Rule",
    "judge": "Judge",
    "panel": "Panel",
    "adjudicated": "Adjudicated",
    "person": "People",
    "norm": "Norms",
    "model": "Model",
}
REFERENCES: frozenset[Kind] = frozenset({"norm", "adjudicated"})
"""The kinds of values with which raters are compared. They are not raters: a norm is a mean of many people, and an
adjudicated score is the decision after raters disagreed."""


@dataclass(frozen=True, slots=True)
class Rater:
    """A rater, or a group of raters that is selected as one (the people of a queue). key: the name in addresses.

    g12: grade condition 12.
    r3: the people of queue 3, who rate by a rubric.
    own: the rating that the answer itself contains.
    q3-7: the people of queue 3 on dimension 7. p5-7: the person with assignment 5, on dimension 7.
    c4: condition 4's mean rating of an item. s4: condition 4's first rating of an item.
    norm: the dataset's norms.
    """

    key: str
    label: str
    kind: Kind
    scale: Scale | None = None

    @property
    def kind_label(self) -> str:
        return KIND_LABELS[self.kind]

    @property
    def noun(self) -> str:
        """The rater's kind inside a sentence."""
        return "person" if self.kind == "person" else self.kind_label.lower()

    @property
    def is_reference(self) -> bool:
        return self.kind in REFERENCES

    @property
    def is_scored(self) -> bool:
        """True if the ratings are numbers; False if they are choices between two answers."""
        return self.scale != CHOICE

    def format_value(self, value: float) -> str:
        """Return the name of a choice, or any other rating as a number."""
        return f"{round(value, 4):g}" if self.is_scored else dict(CHOICE.points)[value]


def list_unit_choices(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the kinds of units that can be rated, with labels.

    Units are answers (in total, or on one criterion of a rubric), pairs of answers, or items on a dimension.
    """
    names = dict.fromkeys(dimension.name for dimension in experiment.dimensions.all())
    kinds = (Rubric.Kind.CRITERIA, Rubric.Kind.PAIRWISE)
    rubrics = list(Rubric.objects.filter(grade_conditions__experiment=experiment, kind__in=kinds).distinct())
    criteria = [
        (f"{CRITERION}{rubric.pk}:{criterion['name']}", f"Answers, on {criterion['name']} of {rubric}")
        for rubric in rubrics
        if rubric.kind == Rubric.Kind.CRITERIA
        for criterion in rubric.criteria
    ]
    pairs = (
        [(PAIRS, "Pairs of answers")] if any(criterion.kind == Rubric.Kind.PAIRWISE for criterion in rubrics) else []
    )
    return [(ANSWERS, "Answers"), *criteria, *pairs, *((f"items:{name}", f"Items, on {name}") for name in names)]


def parse_criterion(units: str) -> tuple[int, str]:
    """Return the primary key of the rubric and the name of the criterion in the name of a kind of units."""
    rubric, _, name = units.removeprefix(CRITERION).partition(":")
    return int(rubric), name


def list_raters(experiment: Experiment, units: str) -> list[Rater]:
    """Return all raters that may have rated these units: graders first, then people, then models."""
    if units == ANSWERS:
        graders = [*_list_graders(experiment), *_list_own_ratings(experiment)]
        return [*graders, *_list_queue_groups(experiment, subject="answers"), *_list_rubric_groups(experiment)]
    if units == PAIRS:
        judging = experiment.grade_conditions.filter(kind=GradeCondition.Kind.JUDGE, rubric__kind=Rubric.Kind.PAIRWISE)
        pairwise_judges = [
            Rater(f"g{condition.pk}", condition.label, "judge", CHOICE)
            for condition in judging.select_related("grader", "rubric").order_by("pk")
        ]
        return [*pairwise_judges, *_list_rubric_groups(experiment, in_pairs=True)]
    if units.startswith(CRITERION):
        rubric = parse_criterion(units)[0]
        judges = [rater for rater in _list_graders(experiment, rubric=rubric) if rater.kind == "judge"]
        return [
            replace(rater, scale=Scale(0, 1)) for rater in (*judges, *_list_rubric_groups(experiment, rubric=rubric))
        ]
    name = units.removeprefix("items:")
    dimension = experiment.dimensions.filter(name=name).order_by("-version").first()
    scale = get_dimension_scale(dimension) if dimension else None
    raters = list(_list_queue_groups(experiment, subject="items", name=name))
    if Norm.objects.filter(item__dataset=experiment.dataset, dimension=name).exists():
        raters.append(Rater("norm", "norms of the dataset", "norm", scale))
    conditions = experiment.answer_conditions.select_related("model", "prompt", "sampler").order_by("pk")
    for key, label in make_condition_labels(list(conditions)).items():
        raters.append(Rater(f"c{key}", f"{label}, mean", "model", scale))
        raters.append(Rater(f"s{key}", f"{label}, first rating", "model", scale))
    return raters


def expand_groups(raters: list[Rater]) -> list[Rater]:
    """Return the raters, with each group replaced by its people in the order of their numbers."""
    queues = {rater.key: rater for rater in raters if rater.key.startswith("q")}
    people: dict[str, list[Rater]] = {key: [] for key in queues} | _list_people_by_rubric(raters)
    for assignment in RaterAssignment.objects.counted().filter(queue__in={_parse_ids(key)[0] for key in queues}):
        for key, group in queues.items():
            queue, dimension = _parse_ids(key)
            if assignment.queue_id == queue and assignment.dimension_id in (None, dimension):
                label = f"{assignment}, {group.label}" if len(queues) > 1 else str(assignment)
                people[key].append(Rater(f"p{assignment.pk}-{dimension}", label, "person", group.scale))
    return [member for rater in raters for member in people.get(rater.key, [rater])]


def _list_people_by_rubric(raters: list[Rater]) -> dict[str, list[Rater]]:
    """Return the people of each group by its key. Each person is a grade condition of their own."""
    groups = {_parse_ids(rater.key)[0]: rater for rater in raters if rater.key[0] == "r"}
    people: dict[str, list[Rater]] = {rater.key: [] for rater in groups.values()}
    conditions = GradeCondition.objects.filter(assignment__queue__in=groups, assignment__excluded_at=None)
    ordered = conditions.order_by("assignment__queue", "assignment__number")
    for pk, queue, number in ordered.values_list("pk", "assignment__queue", "assignment__number"):
        group = groups[queue]
        label = f"rater {number}, {group.label}" if len(groups) > 1 else f"rater {number}"
        people[group.key].append(Rater(f"g{pk}", label, "person", group.scale))
    return people


def list_ids(raters: list[Rater], letter: str) -> list[int]:
    """Return the primary keys in the raters' keys that begin with this letter."""
    return [_parse_ids(rater.key)[0] for rater in raters if rater.key[0] == letter and rater.key[1:2].isdigit()]


def list_dimension_groups(raters: list[Rater]) -> list[tuple[int, int]]:
    """Return (queue, dimension) for each group of people that rates dimensions."""
    return [(ids[0], ids[1]) for rater in raters if rater.key[0] == "q" for ids in [_parse_ids(rater.key)]]


def list_queues(raters: list[Rater]) -> list[int]:
    """Return the queues of all groups of people, whether they rate by dimension or by rubric."""
    return [_parse_ids(rater.key)[0] for rater in raters if rater.key[0] in "qr"]


def _parse_ids(key: str) -> list[int]:
    return [int(part) for part in key[1:].split("-")]


def _list_graders(experiment: Experiment, *, rubric: int | None = None) -> Iterator[Rater]:
    """Yield all graders except people, or only the graders with this rubric.

    Pairwise judges are excluded, because their verdicts are not scores. The rule that repeats the answers' own ratings
    is excluded, because these are listed as "own".
    """
    conditions = experiment.grade_conditions.without_own_ratings().exclude(rubric__kind=Rubric.Kind.PAIRWISE)
    conditions = conditions.exclude(kind=GradeCondition.Kind.PERSON)
    conditions = conditions.filter(rubric=rubric) if rubric else conditions
    with_labels = conditions.select_related("grader", "rubric", "panel").prefetch_related("panel__graders__rubric")
    for condition in with_labels.order_by("pk"):
        kind: Any = condition.kind
        yield Rater(f"g{condition.pk}", condition.label, kind, condition.scale)


def get_dimension_scale(dimension: Dimension) -> Scale:
    points = tuple(sorted((float(value), str(label)) for value, label in dimension.labels.items()))
    return Scale(dimension.scale_min, dimension.scale_max, points)


def _list_own_ratings(experiment: Experiment) -> Iterator[Rater]:
    dimensions = list(experiment.dimensions.all())
    if dimensions:
        low, high = (
            min(dimension.scale_min for dimension in dimensions),
            max(dimension.scale_max for dimension in dimensions),
        )
        yield Rater("own", "the model's own rating", "model", Scale(low, high))


def _list_rubric_groups(
    experiment: Experiment, *, rubric: int | None = None, in_pairs: bool = False
) -> Iterator[Rater]:
    """Yield the people of each queue with a rubric, as a group. Like judges, they give scores or choices."""
    queues = experiment.rating_queues.exclude(status=RatingQueue.Status.DRAFT).exclude(rubric=None)
    pairwise = Q(rubric__kind=Rubric.Kind.PAIRWISE)
    selected_queues = queues.filter(pairwise if in_pairs else ~pairwise).select_related("rubric").order_by("pk")
    for queue in selected_queues.filter(rubric=rubric) if rubric else selected_queues:
        if queue.rubric is not None:
            label = f"people of {queue.name} ({queue.rubric})"
            yield Rater(f"r{queue.pk}", label, "person", CHOICE if in_pairs else queue.rubric.scale)


def _list_queue_groups(experiment: Experiment, *, subject: str, name: str = "") -> Iterator[Rater]:
    queues = RatingQueue.objects.filter(subject=subject).exclude(status=RatingQueue.Status.DRAFT)
    queues_of_experiment = (
        queues.filter(experiment=experiment) if subject == ANSWERS else queues.filter(dataset=experiment.dataset)
    )
    for queue in queues_of_experiment.prefetch_related("dimensions").order_by("pk"):
        for dimension in queue.dimensions.all():
            if name in ("", dimension.name):
                label = f"people of {queue.name} on {dimension.name}"
                yield Rater(f"q{queue.pk}-{dimension.pk}", label, "person", get_dimension_scale(dimension))
