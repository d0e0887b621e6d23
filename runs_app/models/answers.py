"""Answers: the trials of the design itself, in a view of the database that leaves out the calls of judges."""

from __future__ import annotations

from django.db import models

from datasets_app.models import Item
from runs_app.models.conditions import Condition, Wave
from runs_app.models.designs import Dimension, Prompt, Sampler
from runs_app.models.endpoints import LanguageModel
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run
from runs_app.models.trials import Trial


class Answer(models.Model):
    """One planned answer of a model to an item, with its run and its condition. `triggers.sql` declares the view.

    Every reader of answers starts here: a verdict of a judge is a trial, but never an answer.
    """

    trial = models.OneToOneField(Trial, models.DO_NOTHING, primary_key=True, related_name="+")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="+")
    experiment = models.ForeignKey(Experiment, models.DO_NOTHING, related_name="+")
    wave = models.ForeignKey(Wave, models.DO_NOTHING, related_name="+")
    condition = models.ForeignKey(Condition, models.DO_NOTHING, related_name="+")
    model = models.ForeignKey(LanguageModel, models.DO_NOTHING, related_name="+")
    prompt = models.ForeignKey(Prompt, models.DO_NOTHING, related_name="+")
    sampler = models.ForeignKey(Sampler, models.DO_NOTHING, related_name="+")
    item = models.ForeignKey(Item, models.DO_NOTHING, related_name="+")
    category = models.CharField(max_length=120, help_text="Of the item")
    excluded = models.BooleanField(help_text="The item is excluded from its dataset")
    dimension = models.ForeignKey(Dimension, models.DO_NOTHING, null=True, related_name="+")
    sample_idx = models.IntegerField(help_text="Repetition, from 0")
    status = models.CharField(max_length=10)
    error_class = models.CharField(max_length=40)
    attempts = models.SmallIntegerField()
    from_cache = models.BooleanField()
    answer = models.TextField()
    reasoning = models.TextField()
    parse_error = models.CharField(max_length=40)
    rating = models.IntegerField(null=True)
    truncated = models.BooleanField()
    refused = models.BooleanField()
    served_model = models.CharField(max_length=200)
    served_provider = models.CharField(max_length=80)
    input_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=8, null=True)
    latency_ms = models.IntegerField(null=True)

    class Meta:
        managed = False
        db_table = "runs_app_answer"

    def __str__(self) -> str:
        return f"answer {self.pk}"
