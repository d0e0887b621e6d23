"""Rows that determine the price of calls: endpoints and models."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models, transaction

from datasets_app.models.history import StatusChange
from runs_app.models.engine_owned_columns import EngineOwnedColumns


class PricedResource(EngineOwnedColumns):
    """A row that determines the price of calls. A change of it changes the reservations of future calls."""

    PRICED_BY: ClassVar[str]  # The field that shows the error about a missing cost ceiling.
    CONDITION_LOOKUP: ClassVar[str]  # The lookup from a condition to this row.

    class Meta:
        abstract = True

    def clean(self) -> None:
        if not self._state.adding and (problems := self.priced_runs.find_unbounded(self._use_for)):
            raise ValidationError({self.PRICED_BY: problems})

    def save(self, **how: Any) -> None:
        """Save the row and update the reservations of the runs that it serves.

        Raise Unbounded if a budgeted experiment would lose its cost ceiling. `clean()` reports this earlier.
        """
        is_new = self._state.adding
        with transaction.atomic():
            super().save(**how)
            if not is_new:
                self.priced_runs.update_reservations()

    @property
    def priced_runs(self) -> Any:
        """The runs whose calls use this row, as a RunQuerySet."""
        return apps.get_model("runs_app", "Run").objects.filter(**{f"condition__{self.CONDITION_LOOKUP}": self.pk})

    def _use_for(self, run: Any) -> None:
        """Make the run's condition use this row as it is in memory, saved or not."""
        *path, last = self.CONDITION_LOOKUP.split("__")
        owner = run.condition
        for name in path:
            owner = getattr(owner, name)
        setattr(owner, last, self)

    @property
    def history(self) -> models.QuerySet[StatusChange]:
        return StatusChange.objects.for_row(self).select_related("by")
