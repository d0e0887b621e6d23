"""Trials and attempts. A trial is a call to make, which workers claim; an attempt is a call that was made.

Attempts and preflights share the columns of a recorded call, so that one ledger covers both. A call of another program
through the gateway is a trial with an `ExternalCall`. Answers are the trials of the design itself, in a view of the
database that leaves out the calls of judges.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Self

from django.db import models
from django.db.models.lookups import Exact
from django.urls import reverse

from datasets_app.models import Item
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from runs_app.bounds import SCALE_POINT
from runs_app.models.conditions import Condition, Wave
from runs_app.models.designs import Dimension, Prompt, Sampler
from runs_app.models.endpoints import LanguageModel
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run

HTTP_STATUS = (0, 999)


class CallRecord(models.Model):
    """The outcome, usage and cost of one call, in tokens and US dollars. An unknown value is empty."""

    error_class = models.CharField(max_length=40, default="")
    error = models.TextField(default="")
    http_status = models.SmallIntegerField(null=True)
    finish_reason = models.CharField(max_length=40, default="")
    response_id = models.CharField(max_length=200, default="")
    served_model = models.CharField(max_length=200, default="")
    served_provider = models.CharField(max_length=80, default="")
    input_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True)
    reasoning_tokens = models.IntegerField(null=True)
    cache_read_tokens = models.IntegerField(null=True)
    cache_write_tokens = models.IntegerField(null=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=8, null=True)
    list_usd = models.DecimalField(
        max_digits=14,
        decimal_places=8,
        null=True,
        help_text="Cost at list price, without the provider's cache discount. For a reused answer, the cost avoided",
    )
    kept_usd = models.DecimalField(
        max_digits=14, decimal_places=8, null=True, help_text="Amount that stays reserved because the cost is unknown"
    )
    latency_ms = models.IntegerField(null=True)
    trace_id = models.CharField(max_length=64, default="")

    class Meta:
        abstract = True


# Kinds of answers that cannot be used. They are results, not errors, and are counted separately. An answer may belong
# to several kinds.
UNUSABLE_KINDS = {
    "empty": models.Q(answer=""),
    "truncated": models.Q(truncated=True),
    "refused": models.Q(refused=True),
    "unparsed": ~models.Q(parse_error=""),
}
UNUSABLE = models.Q(status="done") & reduce(or_, UNUSABLE_KINDS.values())
# The error class of a trial whose provider reports a refusal as an error.
REFUSED_CLASS = "content_refused"
REFUSED = models.Q(status="done", refused=True) | models.Q(status="failed", error_class=REFUSED_CLASS)
# SQL for the raw response of the trial {t}, as `raw_text` returns it.
RAW_TEXT = "coalesce({t}.raw_response, CASE WHEN {t}.status = 'done' AND {t}.raw_sha256 = '' THEN {t}.answer END)"
# Judges and raters do not see a blank answer, which consists of white space only. BLANK is SQL about the trial {t}.
WHITE_SPACE = " \t\r\n"
BLANK = "btrim({t}.answer, E' \\t\\r\\n') = ''"


class WorkUnit(models.Model):
    """The columns by which the engine claims a trial and ends its claim.

    They are a class of their own, so that statements can tell them from the columns of an answer
    (`engine.call_columns`).
    """

    class Status(models.TextChoices):
        PENDING = "pending", "Pending"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    status = models.CharField(
        max_length=10, choices=Status, default=Status.PENDING, db_default="pending", editable=False
    )
    attempts = models.SmallIntegerField(
        default=0, db_default=0, help_text="Counted at each claim, so that a crash counts too"
    )
    yields = models.SmallIntegerField(
        default=0,
        db_default=0,
        help_text="Times it was released without a result, because the endpoint was overloaded or the worker stopped",
    )
    token = models.UUIDField(
        null=True, help_text="Fencing token of its claim. A result is recorded only while the token matches"
    )
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True, help_text="Earliest time of the next attempt")
    worker = models.ForeignKey(
        "runs_app.Worker", on_delete=models.SET_NULL, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    reserved_usd = models.DecimalField(max_digits=14, decimal_places=8, default=0, db_default=0)
    error_class = models.CharField(max_length=40, default="", db_default="", blank=True)
    error = models.TextField(default="", db_default="", blank=True)
    claimed_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class TrialQuerySet(models.QuerySet["Trial"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(run__experiment__in=Experiment.objects.visible_to(user))

    def with_text(self) -> Self:
        """Return the trials that are done and whose answer is not blank."""
        trimmed = models.Func(models.F("answer"), models.Value(WHITE_SPACE), function="btrim")
        trimmed.output_field = models.TextField()
        return self.filter(status="done").exclude(Exact(trimmed, ""))


@constrain_numbers(rating=(SCALE_POINT.low, SCALE_POINT.high))
@constrain_choices
class Trial(WorkUnit):
    """One call to make. (run, item, dimension, sample_idx) is unique; a verdict adds the answers that it judges.

    A trial that is `done` never changes. A trial without an item is a call of another program through the gateway. No
    worker claims it.
    """

    # These three keys have no database constraint: row-by-row checks took two thirds of the time to plan a million
    # trials. The referenced rows cannot disappear. Triggers freeze items and dimensions in use, and a trigger keeps a
    # run while it has trials.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trials", db_index=False, db_constraint=False)
    item = models.ForeignKey(
        Item, on_delete=models.PROTECT, null=True, related_name="trials", db_index=False, db_constraint=False,
        help_text="Empty for a call of another program through the gateway",
    )  # fmt: skip
    dimension = models.ForeignKey(
        Dimension, on_delete=models.PROTECT, null=True, related_name="trials", db_index=False, db_constraint=False
    )
    sample_idx = models.IntegerField(help_text="Repetition, from 0")
    place = models.IntegerField(
        default=0, db_default=0, help_text="Place in the order of execution of a shuffled experiment, else 0"
    )
    subject = models.ForeignKey(
        "self", on_delete=models.DO_NOTHING, null=True, related_name="verdicts", db_index=False, db_constraint=False,
        help_text="Trial whose answer is judged. Empty if the question is about the item",
    )  # fmt: skip
    rival = models.ForeignKey(
        "self", on_delete=models.DO_NOTHING, null=True, related_name="+", db_index=False, db_constraint=False,
        help_text="In a comparison of two answers: the trial whose answer is shown second",
    )  # fmt: skip

    rating = models.IntegerField(null=True)
    rating_step = models.CharField(
        max_length=10, default="", db_default="", help_text="How the rating was read: json, braces or digit"
    )
    parse_error = models.CharField(
        max_length=40, default="", db_default="", help_text="Why the answer has no readable rating"
    )
    answer = models.TextField(default="", db_default="", help_text="The model's answer, without its reasoning")
    reasoning = models.TextField(default="", db_default="")
    raw_response = models.TextField(
        null=True, help_text="The model's text before parsing. Empty for an answer: equal to it, or removed"
    )
    raw_sha256 = models.CharField(
        max_length=64, default="", db_default="", help_text="SHA-256 of a raw response that was removed"
    )
    raw_removed_at = models.DateTimeField(
        null=True, help_text="Empty for a removed raw response: another trial's answer was reused after its removal"
    )
    messages = models.JSONField(
        null=True, help_text="The conversation of an imported answer. Empty: the request is rendered from the condition"
    )
    finish_reason = models.CharField(max_length=40, default="", db_default="")
    truncated = models.BooleanField(default=False, db_default=False)
    refused = models.BooleanField(default=False, db_default=False)
    response_id = models.CharField(max_length=200, default="", db_default="")
    served_model = models.CharField(max_length=200, default="", db_default="")
    served_provider = models.CharField(max_length=80, default="", db_default="")
    request_hash = models.CharField(max_length=64, default="", db_default="")
    input_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True)
    reasoning_tokens = models.IntegerField(null=True)
    cache_read_tokens = models.IntegerField(null=True)
    cache_write_tokens = models.IntegerField(null=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=8, null=True, help_text="Empty if unknown, never zero")
    from_cache = models.BooleanField(default=False, db_default=False)
    latency_ms = models.IntegerField(null=True)

    objects = TrialQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            # With the key, lists find the trials of an item without reading their rows.
            models.UniqueConstraint(
                fields=["run", "item", "dimension", "sample_idx", "subject", "rival"],
                name="trial_identity",
                nulls_distinct=False,
                include=["id"],
            ),
            models.CheckConstraint(
                condition=models.Q(status="running", token__isnull=False)
                | ~models.Q(status="running") & models.Q(token__isnull=True),
                name="trial_token_while_running",
            ),
        ]
        indexes = [
            # The order of a claim: fresh trials before retries, the place, low sample_idx, then item, then dimension.
            models.Index(
                fields=["run", "attempts", "place", "sample_idx", "item", "dimension"],
                name="trial_claimable",
                condition=models.Q(status="pending"),
            ),
            # Also for the sweep and the watchdog, which read the running trials of the runs that have some.
            models.Index(fields=["run", "status", "id"], name="trial_browse"),
            # For deletions: the verdicts on a run's answers.
            models.Index(fields=["subject"], name="trial_judged", condition=models.Q(subject__isnull=False)),
            models.Index(fields=["rival"], name="trial_compared", condition=models.Q(rival__isnull=False)),
            models.Index(fields=["run", "error_class", "id"], name="trial_errors", condition=~models.Q(error_class="")),
            models.Index(fields=["run", "id"], name="trial_unusable", condition=UNUSABLE, include=["truncated"]),
            # For the retention rule: few answers differ from their raw response.
            models.Index(fields=["run", "id"], name="trial_raw", condition=models.Q(raw_response__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"trial {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("trial_detail", args=[self.pk])

    @property
    def raw_text(self) -> str | None:
        """Return the model's text before parsing, which is stored once if the answer equals it; None if removed."""
        if self.raw_response is not None or self.status != self.Status.DONE or self.raw_sha256:
            return self.raw_response
        return self.answer

    @property
    def asked_item(self) -> Item:
        """Return its item. Raise ValueError for a call of another program, which has none."""
        if self.item is None:
            raise ValueError(f"{self} is a call of another program, which asks about no item")
        return self.item


@constrain_numbers(http_status=HTTP_STATUS)
@constrain_choices
class Attempt(CallRecord):
    """One call of a trial, with its outcome and cost."""

    class Outcome(models.TextChoices):
        OK = "ok", "Answered"
        CACHED = "cached", "Answered from cache"
        TRANSIENT = "transient", "Failed, can be retried"
        PERMANENT = "permanent", "Failed permanently"
        ENDPOINT = "endpoint", "Released: the endpoint was overloaded or down"
        RELEASED = "released", "Released: the worker stopped"
        LOST = "lost", "Lease expired: the worker went silent"
        LATE = "late", "Answered after the claim had ended"

    # No index: `attempt_is_one_call` begins with the trial. No constraint: checks at commit held the endpoint's lock
    # longer, by a tenth. The writer of an attempt holds the claim of its trial or a lock on its run. So the trial
    # cannot be deleted. A trigger keeps a trial while it has attempts.
    trial = models.ForeignKey(
        Trial, on_delete=models.CASCADE, related_name="attempt_rows", db_index=False, db_constraint=False
    )
    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="attempt_rows", db_index=False, db_constraint=False
    )
    token = models.UUIDField()
    call = models.SmallIntegerField(default=0, help_text="Number of the call within one claim, from 0")
    outcome = models.CharField(max_length=10, choices=Outcome)
    raw_response = models.TextField(null=True, help_text="Set only if the trial does not store it")
    raw_sha256 = models.CharField(
        max_length=64, default="", db_default="", help_text="SHA-256 of a raw response that was removed"
    )
    raw_removed_at = models.DateTimeField(null=True)
    request_hash = models.CharField(max_length=64, default="")
    empty = models.BooleanField(default=False, db_default=False, help_text="For a recorded answer, as on its trial")
    truncated = models.BooleanField(default=False, db_default=False)
    refused = models.BooleanField(default=False, db_default=False)
    unparsed = models.BooleanField(default=False, db_default=False)
    batched = models.BooleanField(default=False, db_default=False, help_text="Billed at the batch price")
    worker = models.ForeignKey(
        "runs_app.Worker", on_delete=models.SET_NULL, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["trial", "token", "call"], name="attempt_is_one_call")]
        indexes = [
            models.Index(fields=["run", "id"], name="attempt_browse"),
            models.Index(fields=["run", "id"], name="attempt_raw", condition=models.Q(raw_response__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"attempt {self.pk}: {self.outcome}"


@constrain_choices
class ExternalCall(models.Model):
    """The request and the reply of a trial of stage external, in the form of the API that the program used.

    The trial has no item. Its `messages` have the conversation for people, its answer the text of the reply.
    """

    class Form(models.TextChoices):
        OPENAI = "openai", "OpenAI's chat completions"
        ANTHROPIC = "anthropic", "Anthropic's messages"

    trial = models.OneToOneField(Trial, on_delete=models.CASCADE, primary_key=True, related_name="external_call")
    form = models.CharField(max_length=10, choices=Form)
    session = models.CharField(max_length=120, default="", help_text="Named by the program; groups its calls")
    token = models.CharField(max_length=20, help_text="Public part of the access token")
    parameters = models.JSONField(default=dict, help_text="The request without its model and its messages")
    reply = models.TextField(default="", db_default="", help_text="Body of the reply as received, without keys")

    def __str__(self) -> str:
        return f"call {self.trial_id} of {self.token}"


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
