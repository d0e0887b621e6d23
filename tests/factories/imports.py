"""Imports of snapshots, bundles and studies, with the rows that they made."""

from __future__ import annotations

from types import SimpleNamespace

from datasets_app.models import Dataset
from grading_app.study_import import snapshot_import
from grading_app.study_import.source_import import ImportOptions
from grading_app.study_import.study import DesignNames
from grading_app.study_import.writer import StudyImport
from runs_app.models import Experiment


def import_snapshot(path, owner, **options):
    """Import the file. Return the notes, names and content of the report, with the new experiment and its dataset."""
    report = snapshot_import.import_snapshot(path, owner, **options)
    experiment = Experiment.objects.get(slug=report.experiment) if report.experiment else None
    slug, version = report.dataset or (experiment.dataset.slug, experiment.dataset.version)
    return SimpleNamespace(
        experiment=experiment,
        dataset=Dataset.objects.get(slug=slug, version=version),
        target=report.target,
        notes=report.notes,
        renamed=report.renamed,
        content=report.content,
    )


def write_study(study, slug, owner):
    """Write the study under this name. Return the report."""
    return StudyImport(study, ImportOptions(owner, DesignNames(slug))).run()
