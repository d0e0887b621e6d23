"""The form of an import: the files of a study, their format, its name and its dataset."""

from __future__ import annotations

from typing import Any

from django import forms

from datasets_app.forms import SlugField
from datasets_app.models import Dataset
from datasets_app.pending_uploads import MIB, PendingUpload, get_most_bytes
from evalsite.lib.web.form_fields import get_choice_field, offer_rows
from grading_app.study_import.importers import FORMATS
from grading_app.study_import.text_files import YAML
from grading_app.study_import.upload_reader import SNAPSHOT

PART = "study"
MAX_FILES = 50
DETECT = ("", "Detect the format")
SUFFIXES = (".zip", *YAML, *(suffix for one in FORMATS.values() for suffix in one.suffixes))


class FilesInput(forms.FileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Several files. They may have as many bytes together as one file of an upload."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=FilesInput(attrs={"accept": ",".join(SUFFIXES)}), **kwargs)

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        """Return the files that were sent. Raise ValidationError for too many, or for too many bytes."""
        files = [super(FilesField, self).clean(one, initial) for one in data or [None]]
        if len(files) > MAX_FILES:
            raise forms.ValidationError(f"At most {MAX_FILES} files. Choose a zip of their folder instead.")
        if sum(file.size for file in files if file) > get_most_bytes(PART):
            most = get_most_bytes(PART) // MIB
            raise forms.ValidationError(
                f"The files have more than {most} MiB together. Import them with `manage.py import_study`."
            )
        return [file for file in files if file]


class StudyUploadForm(forms.Form):
    study = FilesField(
        label="Files",
        help_text="The files of one study, a zip of their folder, or a snapshot or bundle of an Evalsite",
    )
    format = forms.ChoiceField(required=False)
    slug = SlugField(
        required=False, help_text="Of the experiment, and of its dataset if the files have one. Empty: from the files"
    )
    dataset = forms.ModelChoiceField(
        Dataset.objects.none(),
        required=False,
        empty_label="Created from the files",
        help_text="An approved dataset of this site if it has the items already, by key",
    )

    def __init__(self, *args: Any, user: Any, previous: PendingUpload | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        formats = [(name, one.label) for name, one in FORMATS.items()]
        get_choice_field(self, "format").choices = [DETECT, *formats, (SNAPSHOT, "Evalsite snapshot or bundle")]
        datasets = Dataset.objects.visible_to(user).filter(status=Dataset.Status.APPROVED)
        offer_rows(self, "dataset", datasets)
        self.previous: PendingUpload | None = None
        if previous:
            self.reuse_files(previous)

    def reuse_files(self, previous: PendingUpload) -> None:
        """Reuse the files of an earlier upload, so that the person need not choose them again."""
        self.previous = previous
        self.fields["study"].required = False

    def parts(self) -> dict[str, Any]:
        """Return the valid files that were sent, by part."""
        return {f"{PART}-{number}": file for number, file in enumerate(self.cleaned_data.get("study") or [], start=1)}

    def about(self) -> dict[str, str]:
        """Return the entries that the job needs, as text."""
        dataset = self.cleaned_data.get("dataset")
        return {
            "format": self.cleaned_data.get("format", ""),
            "slug": self.cleaned_data.get("slug", ""),
            "dataset": str(dataset.pk) if dataset else "",
        }
