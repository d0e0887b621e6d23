"""The base of the command `dataset` and of its larger verbs: their author, and the output that they share."""

from __future__ import annotations

from typing import Any, ClassVar

from datasets_app.importing import FileError
from datasets_app.importing.records import ReadingReport
from datasets_app.models import Dataset
from datasets_app.models.datasets import CurationError
from datasets_app.parametric.spec import SpaceError
from evalsite.lib.history import Actor, TransitionError
from evalsite.lib.ops.commands import VerbCommand, refuse_input, resolve_actor


class DatasetCommand(VerbCommand):
    """A command whose changes have the author `by`."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (CurationError, TransitionError, FileError, SpaceError)
    by: Actor

    def handle(self, *args: Any, **options: Any) -> None:
        self.by = resolve_actor(options.get("user", ""))
        super().handle(*args, **options)

    def print_remarks(self, report: ReadingReport, name: str) -> None:
        """Print warnings, then errors. If there are errors, end the command with exit code 2; nothing is saved."""
        for remark in report.warnings:
            self.stderr.write(f"warning: {remark}", self.style.WARNING)
        if not report.error_total:
            return
        for remark in report.errors:
            self.stderr.write(f"error: {remark}", self.style.ERROR)
        errors = f"{report.error_total} error{'' if report.error_total == 1 else 's'}"
        more = report.error_total - len(report.errors)
        omitted = f"; {more} more are not shown" if more else ""
        refuse_input(f"{name}: {errors}{omitted}; nothing was saved")

    def print_summary(self, dataset: Dataset) -> None:
        excluded = dataset.item_count - dataset.active_count
        self.write(f"{dataset} ({dataset.status}): {dataset.active_count} active items, {excluded} excluded")
        for category, count in dataset.count_active_by_category().items():
            self.write(f"  {category or '(no category)'}: {count}")
        if dataset.content_hash:
            holds = "holds" if dataset.hash_items() == dataset.content_hash else "DOES NOT HOLD"
            self.write(f"  content hash {dataset.content_hash} {holds}")
