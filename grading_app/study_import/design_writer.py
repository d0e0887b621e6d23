"""The draft of another tool's design: an experiment without runs, with its dataset if the files have the items."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from datasets_app.models import Dataset
from grading_app.judging.grader_specs import create_experiment
from grading_app.study_import.study import Study, StudyDesign, StudyError, StudyItem
from grading_app.study_import.study_checks import check_items
from grading_app.study_import.writer import create_dataset
from runs_app.experiment_files.spec_reader import read_spec
from runs_app.models import Experiment, LanguageModel


@transaction.atomic
def create_draft(design: StudyDesign, by: User, *, trusted: bool = False) -> tuple[Experiment, list[str]]:
    """Create the draft, and return it with notes. trusted: the rows of a design may be created whoever asks.

    Raise StudyError or SpecError, and create nothing, if the design cannot be one of this site.
    """
    content: dict[str, Any] = dict(design.content)
    notes = list(design.notes)
    if Experiment.objects.filter(slug=content["experiment"]).exists():
        raise StudyError([f"the experiment {content['experiment']} exists: choose another name"])
    if design.items:
        notes.append(_provide_dataset(design, str(content["dataset"]), by))
    if "models" not in content:
        model = LanguageModel.objects.filter(is_active=True).order_by("name").first()
        if model is None:
            raise StudyError(["the files name no model, and this site has none: create a model first"])
        content["models"] = [model.name]
        notes.append(f"The files name no model: the draft has {model.name}. Choose the models of your study.")
    experiment = create_experiment(read_spec(content), by=by, trusted=trusted, is_import=True)
    return experiment, notes


def _provide_dataset(design: StudyDesign, name: str, by: User) -> str:
    """Create the dataset of a design unless one of this name has all its items. Return a note."""
    items = [StudyItem(**{**item, "choices": tuple(item.get("choices", ()))}) for item in design.items]
    check_items(items)
    if (dataset := Dataset.objects.visible_to(by).named(name).first()) is None:
        create_dataset(Study(name, design.tool, items, [], lambda: iter(())), name, by)
        return f"The dataset {name} was created with {len(items)} items."
    missing = {item.key for item in items} - set(dataset.items.values_list("key", flat=True))
    if missing:
        raise StudyError([f"the dataset {dataset} has no item {key!r}: choose another name" for key in sorted(missing)])
    return f"The dataset {dataset} is here already and is used."
