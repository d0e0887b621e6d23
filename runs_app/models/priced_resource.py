"""Rows that determine the price of calls: endpoints and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models, transaction

from datasets_app.models.history import StatusChange
from runs_app.models.engine_owned_columns import EngineOwnedColumns

if TYPE_CHECKING:
    from runs_app.models.experiments import Condition


class PricedResource(EngineOwnedColumns):
    """A row that determines the price of calls. A change of it changes the reservations of future calls."""

    PRICED_BY: ClassVar[str]  # The field that shows the error about a missing cost ceiling.
    CONDITION_LOOKUP: ClassVar[str]  # The lookup from a condition to this row.

    class Meta:
        abstract = True

    def clean(self) -> None:
        from runs_app.models.reservations import find_unbounded_runs_after  # Avoids an import cycle.

        if not self._state.adding and (problems := find_unbounded_runs_after(self)):
            raise ValidationError({self.PRICED_BY: problems})

    def save(self, **how: Any) -> None:
        """Save the row and update the reservations of the runs that it serves.

        Raise Unbounded if a budgeted experiment would lose its cost ceiling. `clean()` reports this earlier.
        """
        from runs_app.models.reservations import select_affected_runs, update_reservations

        is_new = self._state.adding
        with transaction.atomic():
            super().save(**how)
            if not is_new:
                update_reservations(select_affected_runs(self))

    def serve(self, condition: Condition) -> None:
        """Make the condition use this row as it is in memory, saved or not."""
        raise NotImplementedError

    @property
    def history(self) -> models.QuerySet[StatusChange]:
        return StatusChange.objects.of(self).select_related("by")
