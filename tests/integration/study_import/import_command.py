"""Calls of `manage.py import_study`, and the exported rows of the imported experiment."""

import json

import pytest
from django.core.management import CommandError, call_command

from grading_app.publish.export.file_formats import export_chunks
from runs_app.models import Experiment


def import_study(path, *options):
    """Import the study; return its experiment."""
    call_command("import_study", str(path), *options)
    return Experiment.objects.get()


def import_refused_study(path, *options):
    """Check that the import is refused and creates no experiment; return the message."""
    with pytest.raises(CommandError) as caught:
        call_command("import_study", str(path), *options)
    assert caught.value.returncode == 2
    assert not Experiment.objects.exists()
    return str(caught.value)


def export_rows(experiment, table):
    text = b"".join(export_chunks(experiment, table, "jsonl")).decode()
    return [json.loads(line) for line in text.split("\n") if line]
