"""The scores of answers, in a view of the database with a row for each answer and grader."""

from __future__ import annotations

from django.db import models

from datasets_app.models import Item
from runs_app.models import Condition, Dimension, Experiment, Run, Trial, Wave


class AnswerScore(models.Model):
    """The score of one answer by one grader, or the reason why it has none. `triggers.sql` declares the view.

    grader_kind, grader_id: "rating" and the dimension for the models' own ratings; "rule", "judge", "panel",
    "adjudicated" or "rater" and the grade condition; "person" and the queue, whose raters' mean is the score.
    """

    pk = models.CompositePrimaryKey("trial_id", "grader_kind", "grader_id")
    trial = models.ForeignKey(Trial, models.DO_NOTHING, related_name="+")
    grader_kind = models.CharField(max_length=12)
    grader_id = models.BigIntegerField()
    score = models.FloatField(null=True)
    score_raw = models.TextField(null=True, help_text="The text that the grader read from the answer")
    is_graded = models.BooleanField(help_text="The grader has seen the answer, whether a score could be read or not")
    missing = models.CharField(max_length=20, help_text="Why there is no score; empty with a score")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="+")
    experiment = models.ForeignKey(Experiment, models.DO_NOTHING, related_name="+")
    wave = models.ForeignKey(Wave, models.DO_NOTHING, related_name="+")
    condition = models.ForeignKey(Condition, models.DO_NOTHING, related_name="+")
    item = models.ForeignKey(Item, models.DO_NOTHING, related_name="+")
    category = models.CharField(max_length=120, help_text="Of the item")
    dimension = models.ForeignKey(Dimension, models.DO_NOTHING, null=True, related_name="+")
    sample_idx = models.IntegerField(help_text="Repetition, from 0")
    status = models.CharField(max_length=10, help_text="Of the answer")

    class Meta:
        managed = False
        db_table = "grading_app_answerscore"

    def __str__(self) -> str:
        return f"score of answer {self.trial_id} by {self.grader_kind} {self.grader_id}"
