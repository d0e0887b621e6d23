"""Gradings: one score of one trial by one scorer, judge, panel or person, which the grade condition identifies.

The database stores each replaced verdict as a `SupersededVerdict` row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

from django.conf import settings
from django.db import connection, models, transaction
from django.db.models.functions import Now

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.text.names import write_as_words
from evalsite.lib.text.number_format import format_score
from grading_app.models.rubrics import Grader, Panel, Rubric, Scale
from runs_app.models import Condition, Experiment, Trial
from runs_app.scorers.scorers import label_scorer

OWN_RATING = "rating"  # The scorer of the rule that repeats the answers' own ratings.
SET_FLAG = "SELECT set_config('evalsite.superseding_verdicts', %s, true)"


class GradeConditionQuerySet(models.QuerySet["GradeCondition"]):
    def without_own_ratings(self) -> Self:
        """Exclude the rule that repeats the answers' own ratings, because these are scores of their own."""
        return self.exclude(scorer=OWN_RATING)


@constrain_numbers()
@constrain_choices
class GradeCondition(models.Model):
    """One way to grade an experiment's answers: a rule, a judge, a panel, an adjudication or a rater.

    `grade_condition_id` contains the hash of its content, so a changed rule or judge is another grade condition.
    """

    class Kind(models.TextChoices):
        RULE = "rule", "Rule"
        JUDGE = "judge", "Judge"
        PANEL = "panel", "Panel of judges"
        ADJUDICATED = "adjudicated", "Adjudication"
        PERSON = "person", "Rater with a rubric"

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="grade_conditions")
    grade_condition_id = models.CharField(max_length=255)
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.RULE, db_default="rule")
    scorer = models.CharField(max_length=40, blank=True, help_text="The scorer of a rule")
    parameters = models.JSONField(default=dict, blank=True)
    grader = models.ForeignKey(Grader, on_delete=models.PROTECT, null=True, related_name="grade_conditions")
    rubric = models.ForeignKey(Rubric, on_delete=models.PROTECT, null=True, related_name="grade_conditions")
    panel = models.ForeignKey(Panel, on_delete=models.PROTECT, null=True, related_name="grade_conditions")
    judge_condition = models.OneToOneField(
        Condition,
        on_delete=models.CASCADE,
        null=True,
        related_name="grade_condition",
        help_text="The condition whose runs make the judge's calls",
    )
    assignment = models.OneToOneField(
        "grading_app.RaterAssignment",
        on_delete=models.PROTECT,
        null=True,
        related_name="grade_condition",
        help_text="The rater and the queue, for verdicts by a person",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changes = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="Number of statements that wrote verdicts, counted by a trigger. "
        "A changed number makes cached totals stale",
    )

    objects = GradeConditionQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "grade_condition_id"], name="grade_condition_in_experiment")
        ]

    def __str__(self) -> str:
        return self.grade_condition_id

    @property
    def label(self) -> str:
        """Return the name that pages, figures and reports show: the measure, and in brackets who or what measured it.

        Examples: "Exact match", "Number (tolerance 0.1)", "Correctness (strict-judge)". Files name a grade condition by
        `grade_condition_id`.
        """
        if self.kind == self.Kind.ADJUDICATED:
            return f"Adjudicated, {scale}" if (scale := self.scale) else "Adjudicated"
        rubric = self.rubric.display_name if self.rubric else ""
        if self.kind == self.Kind.PERSON:
            return f"{rubric} (rater {self.parameters['rater']} of {self.parameters['queue']})"
        if self.panel:
            return f"Panel {self.panel.name}"
        if self.grader:
            return f"{rubric} ({self.grader.name})" if rubric else self.grader.name
        if self.is_imported_judge:
            return f"{write_as_words(self.parameters['rubric'])} ({self.parameters['judge']})"
        if "imported" in self.parameters:
            return f"{label_scorer(self.scorer, {})} (imported)"  # Other parameters are facts of the source, some long.
        return label_scorer(self.scorer, self.parameters) or str(self)

    @property
    def repeats_ratings(self) -> bool:
        """Return whether its scores are the answers' own ratings, on the scale of their dimension."""
        return self.scorer == OWN_RATING

    @property
    def is_imported_judge(self) -> bool:
        """Return whether a judge of another tool gave its scores. Its rubric is not here, so it cannot judge again."""
        return self.kind == self.Kind.JUDGE and self.grader_id is None and "judge" in self.parameters

    @property
    def scale(self) -> Scale | None:
        """Return the scale of the rubric (for a panel, its members' rubric) or of the adjudication.

        This site's rules score from 0 to 1. The scale of an imported score is unknown, unless its file states it.
        """
        if rubric := self._get_verdict_rubric():
            return rubric.scale
        if "scale_min" in self.parameters:
            return Scale(self.parameters["scale_min"], self.parameters["scale_max"])
        if self.is_imported_judge:
            return Scale(*self.parameters["scale"]) if "scale" in self.parameters else None
        is_rule_of_this_site = self.kind == self.Kind.RULE and "imported" not in self.parameters
        return Scale(0, 1) if is_rule_of_this_site else None

    @property
    def is_pairwise(self) -> bool:
        return self.rubric is not None and self.rubric.kind == Rubric.Kind.PAIRWISE

    @property
    def score_range(self) -> tuple[float, float] | None:
        """Return the lowest and the highest possible score; None if the scale is unknown."""
        if rubric := self._get_verdict_rubric():
            return rubric.score_range
        return self.scale.ends if self.scale else None

    def _get_verdict_rubric(self) -> Rubric | None:
        """Return the rubric of its verdicts. All members of a panel have the same scale, so the first one is enough."""
        graders = list(self.panel.graders.all()) if self.panel else []
        return self.rubric or (graders[0].rubric if graders else None)

    def list_panel_members(self) -> list[int]:
        """Return the grade conditions of a panel's members; an empty list for other conditions."""
        members: list[int] = self.parameters["members"] if self.kind == GradeCondition.Kind.PANEL else []
        return members

    def list_pooled_conditions(self, among: Sequence[GradeCondition]) -> list[GradeCondition]:
        """Return the conditions whose choices are pooled: all people of a queue, or a judge alone."""
        if self.kind != GradeCondition.Kind.PERSON:
            return [self]
        queue = self.parameters["queue"]
        people = (person for person in among if person.kind == GradeCondition.Kind.PERSON)
        return [person for person in people if person.parameters["queue"] == queue]

    @property
    def is_checked(self) -> bool:
        kinds = (GradeCondition.Kind.JUDGE, GradeCondition.Kind.PANEL)
        return self.kind in kinds and not self.is_pairwise

    @property
    def short_label(self) -> str:
        """Return the judge's name without its rubric."""
        return self.grader.name if self.grader else self.label


class GradingQuerySet(models.QuerySet["Grading"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(condition__experiment__in=Experiment.objects.visible_to(user))


@constrain_numbers()
class Grading(models.Model):
    """A score of one trial under one grade condition.

    A database constraint couples the columns: if parse_ok is false, parse_error is set and score is NULL; if it is
    true, parse_error is empty and score is set.
    """

    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="gradings")
    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="gradings", db_index=False)
    score = models.FloatField(null=True)
    score_raw = models.TextField(default="", db_default="", help_text="The text that the grader read from the answer")
    parse_ok = models.BooleanField()
    parse_error = models.CharField(max_length=40, default="", db_default="")
    reasoning = models.TextField(default="", db_default="", help_text="The judge's reasoning, unchanged")
    detail = models.JSONField(null=True, help_text="The verdict on each criterion, or the score of each panel member")
    judged_by = models.ForeignKey(
        Trial,
        on_delete=models.DO_NOTHING,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
        help_text="The judge's call",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = GradingQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["condition", "trial"], name="grading_once"),
            models.CheckConstraint(
                condition=models.Q(parse_ok=True, parse_error="", score__isnull=False)
                | models.Q(parse_ok=False, score__isnull=True) & ~models.Q(parse_error=""),
                name="grading_parse_contract",
            ),
        ]
        indexes = [  # For deletions of the judge's call.
            models.Index(fields=["judged_by"], name="grading_by_call", condition=models.Q(judged_by__isnull=False))
        ]

    def __str__(self) -> str:
        return f"{self.condition.scorer}: {self.score}"

    @property
    def score_text(self) -> str:
        """Return the score for pages: right or wrong for a rule's 1 or 0, otherwise the number."""
        if self.score is None:
            return self.parse_error
        text = format_score(self.score)
        is_rule = self.condition.kind == GradeCondition.Kind.RULE
        return {0.0: "✗ wrong", 1.0: "✓ right"}.get(self.score, text) if is_rule else text

    @property
    def shows_read_text(self) -> bool:
        """Return whether pages show the text that the grader read: only if it differs from the score."""
        return self.score_raw not in ("", self.score_text)

    def get_level(self, criterion: str = "") -> float | None:
        """Return the score, or for a criterion: 1 if it is met, 0 if not, None if the verdict does not mention it."""
        if not criterion:
            return self.score
        met = (self.detail or {}).get("criteria", {}).get(criterion)
        return None if met is None else float(met)

    @property
    def details(self) -> list[tuple[str, str]]:
        """Return the details of the score as (name, text): criteria, label, flags, the members of a panel."""
        detail = self.detail or {}
        criteria = [(name, "met" if met else "not met") for name, met in detail.get("criteria", {}).items()]
        members = [
            (name, "no score" if score is None else f"{score:g}") for name, score in detail.get("members", {}).items()
        ]
        votes = [("votes", f"{detail['votes']} of {detail['seats']}")] if "votes" in detail else []
        labels = [(name, detail[name]) for name in ("label", "code") if detail.get(name)]
        return [*labels, *criteria, *votes, *members, *(("the answer is", flag) for flag in detail.get("flags", ()))]


@constrain_numbers()
@constrain_choices
class Preference(models.Model):
    """The newest verdict of a judge or a person on two answers, shown as A and B in this order.

    `judged_by` is the judge's call that returned the verdict. Earlier calls remain as trials.
    """

    class Winner(models.TextChoices):
        A = "a", "The first"
        B = "b", "The second"
        TIE = "tie", "Neither"

    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="preferences")
    judged_by = models.OneToOneField(
        Trial, on_delete=models.CASCADE, null=True, related_name="preference", db_constraint=False
    )
    trial_a = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="shown_first", db_constraint=False)
    trial_b = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="shown_second", db_constraint=False)
    winner = models.CharField(max_length=3, choices=Winner, blank=True, help_text="Empty if the verdict is unreadable")
    parse_error = models.CharField(max_length=40, default="", blank=True)
    reasoning = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["condition", "trial_a", "trial_b"], name="preference_once"),
            models.CheckConstraint(
                condition=models.Q(winner="") & ~models.Q(parse_error="")
                | ~models.Q(winner="") & models.Q(parse_error=""),
                name="preference_parse_contract",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.trial_a_id} or {self.trial_b_id}: {self.winner or self.parse_error}"


@constrain_numbers()
class SupersededVerdict(models.Model):
    """A former grading or preference that a newer verdict replaced, or that its rater deleted.

    Database triggers write these rows (`grading_app_keep_superseded`). They never change.
    """

    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="superseded")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="superseded", db_constraint=False)
    rival = models.ForeignKey(
        Trial, on_delete=models.CASCADE, null=True, related_name="+", db_constraint=False, db_index=False,
        help_text="The answer shown second, for a preference",
    )  # fmt: skip
    content = models.JSONField(help_text="All columns of the former row")
    superseded_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["pk"]
        indexes = [  # For deletions of the answer shown second.
            models.Index(fields=["rival"], name="superseded_compared", condition=models.Q(rival__isnull=False))
        ]

    def __str__(self) -> str:
        return f"verdict on trial {self.trial_id} until {self.superseded_at:%Y-%m-%d %H:%M}"

    @property
    def score(self) -> float | None:
        score: float | None = self.content.get("score")
        return score

    @property
    def winner(self) -> str:
        """Return the name of the preferred answer, A or B, or the label of a tie; empty for a score."""
        winner = self.content.get("winner") or ""
        return winner.upper() if len(winner) == 1 else winner

    @property
    def given_at(self) -> datetime:
        return datetime.fromisoformat(self.content["created_at"])


@constrain_numbers()
class Adjudication(models.Model):
    """A person's final score of one answer, with the reason. Rows are only added: the last row of a trial counts."""

    condition = models.ForeignKey(GradeCondition, on_delete=models.CASCADE, related_name="adjudications")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="adjudications", db_constraint=False)
    score = models.FloatField()
    reason = models.TextField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["condition", "trial", "-id"], name="adjudication_last")]

    def __str__(self) -> str:
        return f"{self.score:g}: {self.reason[:60]}"


def count_verdicts(condition: models.Q, *fields: str) -> list[tuple[Any, ...]]:
    """Return (value of each field, number) of gradings and preferences together, the most frequent first."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for verdicts in (Grading.objects.filter(condition), Preference.objects.filter(condition)):
        for *values, n in verdicts.order_by().values_list(*fields).annotate(n=models.Count("pk")):
            counts[tuple(values)] += n
    return sorted(((*values, n) for values, n in counts.items()), key=lambda row: (-row[-1], row))


@contextmanager
def allow_superseding() -> Iterator[None]:
    """Allow this block to replace or delete verdicts, which the database refuses elsewhere.

    The block is one transaction. Triggers copy each former verdict that changes.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(current_setting('evalsite.superseding_verdicts', true), '')")
        former = cursor.fetchone()[0]
        cursor.execute(SET_FLAG, ["on"])
        yield
        cursor.execute(SET_FLAG, [former])
