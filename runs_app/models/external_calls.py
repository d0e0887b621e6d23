"""Calls of other programs through the gateway: the parts of their trials that no other trial has."""

from __future__ import annotations

from django.db import models

from evalsite.lib.choice_constraints import constrain_choices
from runs_app.models.trials import Trial


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
