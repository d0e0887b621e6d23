"""The base of endpoints and models, which determine the price of calls."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import transaction

from evalsite.lib.history import HasHistory
from runs_app.models.engine_owned_columns import EngineOwnedColumns


class PricedResource(HasHistory, EngineOwnedColumns):
    """A row that determines the price of calls. Changing it changes the reservations of future calls."""

    PRICE_ERROR_FIELD: ClassVar[str]  # The field that shows the error about a missing cost ceiling.
    CONDITION_LOOKUP: ClassVar[str]  # The lookup from a condition to this row.

    class Meta:
        abstract = True

    def clean(self) -> None:
        if not self._state.adding and (problems := self.priced_runs.find_unbounded(self._attach_to)):
            raise ValidationError({self.PRICE_ERROR_FIELD: problems})

    def save(self, **options: Any) -> None:
        """Save the row and update the reservations of the runs that use it.

        Raise Unbounded if a budgeted experiment would lose its cost ceiling. `clean()` reports this earlier.
        """
        is_new = self._state.adding
        with transaction.atomic():
            super().save(**options)
            if not is_new:
                self.priced_runs.update_reservations()

    @property
    def priced_runs(self) -> Any:
        """Return the runs whose calls use this row, as a RunQuerySet."""
        return apps.get_model("runs_app", "Run").objects.filter(**{f"condition__{self.CONDITION_LOOKUP}": self.pk})

    def _attach_to(self, run: Any) -> None:
        """Make the run's condition refer to this instance, so that its unsaved values apply."""
        *path, last = self.CONDITION_LOOKUP.split("__")
        owner = run.condition
        for name in path:
            owner = getattr(owner, name)
        setattr(owner, last, self)
