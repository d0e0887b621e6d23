"""The lookup of graders by name, rubric or design, of rubrics that may judge, and of a judge's newer parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from evalsite.lib.history import Actor
from evalsite.lib.text.names import NamedChoice, UnknownNameError, find_named
from grading_app.models import GradeCondition, Grader, Panel, RatingQueue, Rubric
from runs_app.models import Experiment, TextSet
from runs_app.planning.work import PlanError

# The lookup from a rubric or a text set to the verdicts that were given by it.
VERDICTS: dict[Any, str] = {Rubric: "grade_conditions", TextSet: "graders__grade_conditions"}


def choose_graders(
    experiment: Experiment, names: Sequence[str], rubric: str | None, texts: str | None = None
) -> list[Grader]:
    """Return the graders with these names, or all graders of a rubric.

    A name is that of a grader, or of its scores on the experiment's pages. With names and a rubric or texts, return
    variants of the named graders that use them.
    New variants are not saved; `save_graders` saves them. Raise PlanError with every name that does not exist.
    """
    rubric_row = None if rubric is None else _find_rubric(rubric)
    text_set = None if texts is None else _find_texts(texts)
    if names:
        return [grader.make_variant(rubric_row, text_set) for grader in _find_by_names(experiment, names)]
    if text_set is not None:
        raise PlanError(["texts: also name the grader that judges with them"])
    if rubric_row is None:
        return []
    graders = list(Grader.objects.with_parts().in_use().filter(rubric=rubric_row))
    if not graders:
        raise PlanError([f"rubric: no grader uses {rubric_row}; also name the grader that judges by it"])
    return graders


def _find_by_names(experiment: Experiment, names: Sequence[str]) -> list[Grader]:
    keys: dict[int, list[str]] = defaultdict(list)
    for condition in experiment.grade_conditions.filter(kind="judge", grader__isnull=False):
        keys[cast(int, condition.grader_id)].extend((f"g{condition.pk}", condition.grade_condition_id))
    # An archived grader is found by its own name only, so that the error can say that it is archived.
    graders = Grader.objects.with_parts().filter(Q(archived_at=None) | Q(name__in=names)).order_by("name")
    choices = [
        NamedChoice(
            grader,
            grader.name,
            (
                grader.name,
                f"{grader.rubric.display_name} ({grader.name})",
                f"{grader.name} ({grader.rubric})",
                *keys[grader.pk],
            ),
        )
        for grader in graders
    ]
    found, problems = [], []
    for name in names:
        try:
            found.append(find_named(name, choices, "grader"))
        except UnknownNameError as error:
            problems.append(f"grader: {error}")
    if problems:
        raise PlanError(problems)
    return list(dict.fromkeys(found))


def find_grader(name: str) -> Grader | None:
    return Grader.objects.with_parts().filter(name=name).first()


def find_design_graders(experiment: Experiment) -> list[Grader]:
    """Return the graders of the design, which judge automatically. Deleted graders are skipped."""
    graders = {grader.name: grader for grader in Grader.objects.with_parts().filter(name__in=experiment.graders)}
    return [graders[name] for name in experiment.graders if name in graders]


def find_panel(name: str) -> Panel:
    panel: Panel | None = Panel.objects.filter(name=name).first()
    if panel is None:
        raise PlanError([f"panel: there is no panel {name}"])
    return panel


def _find_rubric(reference: str) -> Rubric:
    rubric: Rubric | None = Rubric.objects.named(reference).exclude(kind=Rubric.Kind.WRITER).first()
    if rubric is None:
        raise PlanError([f"rubric: there is no rubric {reference}{Rubric.objects.suggest_version(reference)}"])
    return rubric


def _find_texts(reference: str) -> TextSet:
    text_set: TextSet | None = TextSet.objects.named(reference).select_related("dataset").first()
    if text_set is None:
        raise PlanError([f"texts: there are no item rubrics {reference}{TextSet.objects.suggest_version(reference)}"])
    return text_set


def save_graders(graders: Sequence[Grader], by: Actor) -> list[Grader]:
    """Save the new graders with their author, and return all of them."""
    for grader in graders:
        if grader.pk is None:
            grader.created_by = by if isinstance(by, User) else None
            grader.save()
    return list(graders)


def select_usable(kind: Any, experiment: Experiment) -> Any:
    """Return the approved versions, and the imported ones that came with this study.

    Verdicts by an imported version cannot be given here before this function allows it. So verdicts of an imported
    study by it came with the study.
    """
    approved = Q(status=kind.Status.APPROVED)
    if not experiment.imported_from:
        return kind.objects.filter(approved)
    judged_by_it = kind.objects.filter(
        Q(**{f"{VERDICTS[kind]}__experiment": experiment})
        | Q(rating_queues__in=RatingQueue.objects.filter(experiment=experiment).exclude(status="draft"))
    )
    return kind.objects.filter(approved | Q(status=kind.Status.IMPORTED, pk__in=judged_by_it.values("pk")))


def is_usable(row: Rubric | TextSet, experiment: Experiment) -> bool:
    """Return whether this version may judge the experiment's answers. An approved one needs no query."""
    kind = type(row)
    return row.status == kind.Status.APPROVED or select_usable(kind, experiment).filter(pk=row.pk).exists()


def select_usable_graders(experiment: Experiment) -> Any:
    """Return the graders in use whose rubric may judge this experiment's answers."""
    return Grader.objects.in_use().filter(rubric__in=select_usable(Rubric, experiment).values("pk"))


@dataclass(frozen=True, slots=True)
class RubricUpgrade:
    """The newer rubric or item rubrics of a judge, and the address of the form that adds the judge with them."""

    parts: tuple[Rubric | TextSet, ...]
    address: str

    @property
    def label(self) -> str:
        return " and ".join(str(part) for part in self.parts)


def find_rubric_upgrades(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, RubricUpgrade]:
    """Return the judges whose rubric or text set has a newer approved version that no judge uses yet, by condition.

    The number of queries is always two.
    """
    graders = {condition.pk: condition.grader for condition in conditions if condition.grader is not None}
    rubrics = _find_newest(Rubric, (grader.rubric.name for grader in graders.values()))
    sets = _find_newest(TextSet, (grader.text_set.name for grader in graders.values() if grader.text_set))
    used = {_get_identity(grader, grader.rubric, grader.text_set) for grader in graders.values()}
    upgrades = {}
    for pk, grader in graders.items():
        rubric = _find_later(rubrics, grader.rubric)
        texts = _find_later(sets, grader.text_set)
        if (rubric or texts) and _get_identity(grader, rubric or grader.rubric, texts or grader.text_set) not in used:
            initial = {name: part.pk for name, part in (("rubric", rubric), ("texts", texts)) if part}
            parts = tuple(part for part in (rubric, texts) if part)
            upgrades[pk] = RubricUpgrade(parts, get_judge_form_url(experiment, grader=grader.name, **initial))
    return upgrades


def get_judge_form_url(experiment: Experiment, **initial: Any) -> str:
    """Return the address of the judge form, with its fields filled in."""
    return f"{reverse('experiment_judge', args=[experiment.slug])}?{urlencode(initial)}"


def _find_newest(kind: Any, names: Iterable[str]) -> dict[str, Any]:
    approved = kind.objects.filter(name__in=set(names), status=kind.Status.APPROVED)
    return {part.name: part for part in approved.order_by("version")}


def _find_later(newest: dict[str, Any], part: Any) -> Any:
    candidate = newest.get(part.name) if part else None
    return candidate if candidate and candidate.version > part.version else None


def _get_identity(grader: Grader, rubric: Rubric, texts: TextSet | None) -> tuple[Any, ...]:
    return grader.language_model_id, grader.sampler_id, grader.on_empty, grader.longest_answer, rubric, texts
