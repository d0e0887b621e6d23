"""Judges: rubrics with instructions and scales, graders (models with a rubric), and panels of graders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models, transaction
from django.utils import timezone

from datasets_app.models.datasets import slug_validator
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, TransitionError, TransitionQuerySet, record_changes
from evalsite.lib.permissions import is_member
from evalsite.lib.text.hashing import build_condition_id, slugify_name
from evalsite.lib.text.names import write_as_words
from runs_app.llm import judge_prompt, rubric_checks
from runs_app.models import Experiment, LanguageModel, Sampler, TextSet
from runs_app.models.designs import Versioned, build_approval_constraint, check_archivable

MAX_POINTS = 11
NEITHER, FIRST, SECOND = 0, 1, 2
"""The values of a choice between two answers, in the order in which the rater saw them."""
WINNERS = {FIRST: "A", SECOND: "B", NEITHER: "tie"}
MAX_NAME_LENGTH = 80
VARIANT_FIELDS = ("language_model", "sampler", "on_empty", "longest_answer")


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of a scale, and the names of its points if they have names."""

    low: float
    high: float
    points: tuple[tuple[float, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    def list_points(self) -> list[tuple[float, str]]:
        """Return the points of a short whole-number scale or of named points; an empty list for a continuous scale."""
        names_by_value, (low, high) = dict(self.points), self.ends
        if low.is_integer() and high.is_integer() and 1 < high - low < MAX_POINTS:
            return [(float(value), names_by_value.get(float(value), "")) for value in range(int(low), int(high) + 1)]
        return list(self.points) if len(self.points) > 1 else []


CHOICE = Scale(0, 1, ((0, "the second"), (0.5, "neither"), (1, "the first")))
"""A choice between two answers as a number. Its mean is the share of wins; a tie is half a win."""


@constrain_numbers()
@constrain_choices
class Rubric(Versioned):
    """A versioned template for a judge, with the kind of its verdict. It is approved before use."""

    APPROVAL = "grading_app.approve_rubric"

    class Kind(models.TextChoices):
        SCORE = "score", "Score on a scale"
        CRITERIA = "criteria", "Pass or fail per criterion"
        LABEL = "label", "One label from a list"
        PAIRWISE = "pairwise", "Better of two answers"
        WRITER = "writer", "Rubric writer: one rubric per item"

    kind = models.CharField(max_length=10, choices=Kind, default=Kind.SCORE)
    messages = models.JSONField(
        help_text='Turns: [{"role": "system", "content": "..."}, {"role": "user", "content": "{{answer}}"}]'
    )
    scale_min = models.FloatField(default=0, help_text="Lowest possible score")
    scale_max = models.FloatField(default=1, help_text="Highest possible score")
    criteria = models.JSONField(
        default=list, blank=True, help_text='[{"name": "correct", "description": "...", "weight": 1}]'
    )
    labels = models.JSONField(
        default=list, blank=True, help_text='[{"name": "correct", "score": 1}, {"name": "wrong", "score": 0}]'
    )

    class Meta(Versioned.Meta):
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="rubric_name_version"),
            build_approval_constraint("grading_app_rubric"),
            models.CheckConstraint(
                condition=models.Q(scale_min__lt=models.F("scale_max")), name="rubric_scale_has_two_points"
            ),
        ]
        permissions = [("approve_rubric", "Can approve and archive rubrics")]

    @property
    def display_name(self) -> str:
        """Return the name as words, with the version from the second one on: "Correctness", "Correctness 2"."""
        return write_as_words(self.name) + (f" {self.version}" if self.version > 1 else "")

    @property
    def content(self) -> dict[str, Any]:
        """Return the text for the judge, and the definition of its verdict."""
        common = {"kind": self.kind, "messages": self.messages}
        by_kind = {
            self.Kind.SCORE: {"min": self.scale_min, "max": self.scale_max},
            self.Kind.CRITERIA: {"criteria": self.criteria},
            self.Kind.LABEL: {"labels": self.labels},
        }
        return common | by_kind.get(self.Kind(self.kind), {})

    @property
    def score_range(self) -> tuple[float, float]:
        """Return the lowest and the highest score of a verdict."""
        if self.kind in (self.Kind.CRITERIA, self.Kind.PAIRWISE):
            return 0.0, 1.0  # The share of the weights that are met, or of the pairs that are won.
        if self.kind == self.Kind.LABEL:
            scores = [float(label["score"]) for label in self.labels if "score" in label]
            if scores:
                return min(scores), max(scores)
        return self.scale_min, self.scale_max

    @property
    def lowest_score(self) -> float:
        """Return the lowest score of a verdict. A label without a score counts as its index in the list."""
        if self.kind == self.Kind.SCORE:
            return self.scale_min
        if self.kind == self.Kind.LABEL:
            return min(float(label.get("score", position)) for position, label in enumerate(self.labels))
        return 0.0

    @property
    def can_judge(self) -> bool:
        return self.status == self.Status.APPROVED and self.kind != self.Kind.WRITER

    @property
    def scale(self) -> Scale:
        """Return the scale of its scores."""
        if self.kind == self.Kind.CRITERIA:
            return Scale(0, 1)  # The share of the weights of the criteria that are met.
        if self.kind != self.Kind.LABEL:
            return Scale(self.scale_min, self.scale_max)
        points = sorted((float(label["score"]), str(label["name"])) for label in self.labels if "score" in label)
        if not points:
            return Scale(self.scale_min, self.scale_max)
        return Scale(points[0][0], points[-1][0], tuple(points))

    def clean(self) -> None:
        if self.kind not in self.Kind.values:
            return  # The field itself reports the error.
        kind = cast(rubric_checks.AnyKind, self.kind)
        errors = rubric_checks.find_content_problems(
            kind, low=self.scale_min, high=self.scale_max, criteria=self.criteria, labels=self.labels
        )
        if problems := rubric_checks.find_template_problems(kind, self.messages):
            errors["messages"] = problems
        if errors:
            raise ValidationError(errors)

    def build_verdict_object(self, values: Mapping[str, float]) -> dict[str, Any]:
        """Return the equal judge's verdict as an object, for example {"criteria": {"clear": true}} or {"winner": "A"}.

        `values` maps criteria to numbers, or "" to the only number.
        """
        if self.kind == Rubric.Kind.CRITERIA:
            return {"criteria": {name: bool(value) for name, value in values.items()}}
        value = values[""]
        if self.kind == Rubric.Kind.LABEL:
            return {"label": self.labels[int(value) - 1]["name"]}
        return {"winner": WINNERS[int(value)]} if self.kind == Rubric.Kind.PAIRWISE else {"score": value}

    def build_spec(self) -> dict[str, Any]:
        content = {name: value for name, value in self.content.items() if name != "messages"}
        return {"name": self.name, **content, "messages": self.messages}


class RubricTest(models.Model):
    """The test of a rubric on stored answers by one judge model. Its verdicts are no scores of the experiment."""

    rubric = models.ForeignKey(Rubric, on_delete=models.CASCADE, related_name="tests")
    condition = models.OneToOneField("runs_app.Condition", on_delete=models.CASCADE, related_name="rubric_test")

    def __str__(self) -> str:
        return f"test of {self.rubric}"


class GraderQuerySet(models.QuerySet["Grader"]):
    def visible_to(self, user: Any) -> Self:
        return self if is_member(user) else self.none()

    def in_use(self) -> Self:
        """Return the graders that may give new gradings: those that are not archived."""
        return self.filter(archived_at=None)

    def with_parts(self) -> Self:
        """Fetch each grader with the rows that its requests consist of."""
        return self.select_related("language_model__endpoint", "rubric", "sampler", "text_set__dataset")

    def of_design(self, experiment: Experiment) -> list[Grader]:
        """Return the graders of the design, which judge automatically. Deleted graders are skipped."""
        graders = {grader.name: grader for grader in self.with_parts().filter(name__in=experiment.graders)}
        return [graders[name] for name in experiment.graders if name in graders]


def _make_suffix(part: Rubric | TextSet | None) -> str:
    return f"-{part.name}-v{part.version}" if part else ""


@constrain_numbers()
@constrain_choices
class Grader(HasHistory, models.Model):
    """A judge model with a rubric. The database freezes its content once it has judged."""

    class OnEmpty(models.TextChoices):
        SKIP = "skip", "Do not judge empty answers"
        GRADE = "grade", "Judge empty answers"
        ZERO = "zero", "Lowest score without a call"

    name = models.CharField(max_length=80, unique=True, validators=[slug_validator])
    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="graders")
    rubric = models.ForeignKey(Rubric, on_delete=models.PROTECT, related_name="graders")
    sampler = models.ForeignKey(Sampler, on_delete=models.PROTECT, related_name="graders")
    text_set = models.ForeignKey(
        TextSet,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="graders",
        help_text="The texts for {{item_rubric}} in the rubric",
    )
    on_empty = models.CharField("empty answers", max_length=8, choices=OnEmpty, default=OnEmpty.SKIP)
    longest_answer = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Characters. Longer answers get the lowest score without a call. Empty: no limit",
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = GraderQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name = "judge"

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        super().clean()
        if self.rubric_id and self.rubric.kind == Rubric.Kind.WRITER:
            raise ValidationError({"rubric": f"{self.rubric} writes item rubrics and asks for no verdict."})

    @property
    def content(self) -> dict[str, Any]:
        """Return the content that identifies the judge, without names: model, sampler, rubric and rules for answers."""
        rubric = {name: value for name, value in self.rubric.content.items() if name != "messages"}
        answer_rules = {"on_empty": self.on_empty, "longest": self.longest_answer}
        default_rules = {"on_empty": self.OnEmpty.SKIP, "longest": None}
        return {
            "model": self.language_model.identity,
            "sampler": self.sampler.content,
            "prompt": {"messages": self.rubric.messages, "answer_format": "text"},
            "rubric": rubric,
            "verdict_form": judge_prompt.build_verdict_form(rubric),
            **({"texts": self.text_set.content_hash} if self.text_set else {}),
            **({"answers": answer_rules} if answer_rules != default_rules else {}),
        }

    @property
    def output_limit(self) -> int | None:
        """Return the most output tokens of a verdict, or None without a limit."""
        return self.sampler.compute_output_ceiling(self.language_model.max_output_tokens)

    def measure_longest_text(self) -> int:
        """Return the bytes of the longest text for {{item_rubric}}, or 0 without a text set."""
        texts = self.text_set.texts.values_list("text", flat=True) if self.text_set else ()
        return max((len(text.encode()) for text in texts), default=0)

    def check_archivable(self, by: Actor) -> None:
        """Raise TransitionError if the grader is archived, or if `by` may not archive it."""
        if self.archived_at is not None:
            raise TransitionError(f"grader {self} is already archived")
        check_archivable(self, by, named_by=Experiment.objects.filter(graders__contains=[self.name]))

    def archive(self, *, by: Actor, reason: str) -> None:
        """Archive the grader, so that it gives no new gradings. Existing gradings stay.

        Raise TransitionError if it is already archived, or if `by` may not archive it.
        """
        with transaction.atomic():
            self.check_archivable(by)
            if not Grader.objects.in_use().filter(pk=self.pk).update(archived_at=timezone.now()):
                raise TransitionError(f"grader {self} is already archived")
            record_changes([(self, "in use", "archived")], by=by, reason=reason)

    @property
    def grade_condition_id(self) -> str:
        """Return the id `grader_rubric--hash12`."""
        return build_condition_id(f"{slugify_name(self.name)}_{slugify_name(self.rubric.name)}", self.content)

    def make_variant_name(self, rubric: Rubric, texts: TextSet | None) -> str:
        """Return a free name such as `judge-a-strict-v2-own-v3`: the judge, then the changed parts.

        A number is appended if the name is taken.
        """
        suffixes = [
            (_make_suffix(old), _make_suffix(new))
            for old, new in ((self.rubric, rubric), (self.text_set, texts))
            if new is not None and new != old
        ]
        stem = self.name
        for old, _ in reversed(suffixes):
            stem = stem.removesuffix(old) if old else stem
        suffix = "".join(new for _, new in suffixes)
        for counter in ("", *(f"-{number}" for number in range(2, 1_000))):
            name = stem[: max(1, MAX_NAME_LENGTH - len(suffix + counter))] + (suffix + counter)[1 - MAX_NAME_LENGTH :]
            if not Grader.objects.filter(name=name).exists():
                break
        return name

    def make_variant(self, rubric: Rubric | None, texts: TextSet | None) -> Grader:
        """Return the same judge with another rubric or other texts: the existing grader, or a new unsaved one."""
        rubric, texts = rubric or self.rubric, texts or self.text_set
        if (self.rubric, self.text_set) == (rubric, texts):
            return self
        fields = {name: getattr(self, name) for name in VARIANT_FIELDS} | {"rubric": rubric, "text_set": texts}
        existing: Grader | None = Grader.objects.with_parts().in_use().filter(**fields).first()
        return existing or Grader(name=self.make_variant_name(rubric, texts), **fields)


class PanelQuerySet(TransitionQuerySet):
    def visible_to(self, user: Any) -> Self:
        return self if is_member(user) else self.none()


@constrain_numbers()
@constrain_choices
class Panel(HasHistory, models.Model):
    """Several graders whose scores of one answer are combined."""

    class Rule(models.TextChoices):
        MEAN = "mean", "Mean"
        MEDIAN = "median", "Median"
        MAJORITY = "majority", "Majority"

    name = models.CharField(max_length=80, unique=True, validators=[slug_validator])
    graders = models.ManyToManyField(Grader, related_name="panels", verbose_name="judges")
    rule = models.CharField(max_length=10, choices=Rule, default=Rule.MEAN)
    quorum = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Minimum number of members with a score. Empty: every member must have judged the answer, "
        "and unreadable verdicts have no vote",
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = PanelQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def build_spec(self) -> dict[str, Any]:
        """Return the panel in the format of a file."""
        return {
            "name": self.name,
            "graders": sorted(grader.name for grader in self.graders.all()),
            "rule": self.rule,
            **({"quorum": self.quorum} if self.quorum else {}),
        }
