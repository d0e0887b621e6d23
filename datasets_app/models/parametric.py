"""Spaces of difficulty: the definitions from which datasets of parametric tasks are generated."""

from __future__ import annotations

import json
from typing import Any

from django.db import models

from datasets_app.models.datasets import Dataset
from evalsite.lib.constraints import constrain_numbers


@constrain_numbers()
class ParametricSpace(models.Model):
    """The space that a dataset was generated from. A database trigger freezes it with the dataset.

    The definition is stored as text, because the seeds of the cases distinguish 1 from 1.0.
    """

    dataset = models.OneToOneField(Dataset, on_delete=models.CASCADE, related_name="parametric_space")
    file = models.TextField(help_text="The space in YAML or JSON, unchanged")
    task_files = models.JSONField(default=dict, blank=True, help_text="Task files that the space names, by name")
    definition = models.TextField(
        help_text="Points, seed and generator versions as JSON. It generates the same items again"
    )
    definition_hash = models.CharField(max_length=64, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"space of {self.dataset}"

    def read_definition(self) -> dict[str, Any]:
        """Return the definition as `Space.definition` returned it."""
        content: dict[str, Any] = json.loads(self.definition)
        return content
