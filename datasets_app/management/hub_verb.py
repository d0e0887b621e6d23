"""The verb `dataset download`: a split of a dataset on the Hugging Face hub as a draft, pinned to a commit."""

from __future__ import annotations

from typing import Any

from datasets_app.importing import parse_mapping
from datasets_app.importing.dataset_writer import create_dataset
from datasets_app.importing.hub_dataset import download_split
from datasets_app.importing.limited_reader import read_upload
from datasets_app.management.dataset_command import DatasetCommand
from datasets_app.models.datasets import ABOUT
from evalsite.lib.ops.commands import add_list_option


class HubVerb(DatasetCommand):
    """The command with the verb `download`."""

    def do_download(self, repository: str, name: str, **options: Any) -> None:
        split = download_split(
            repository,
            configuration=options["config"],
            split=options["split"],
            revision=options["revision"],
            data_file=options["data_file"],
        )
        self.write(f"{repository} at revision {options['revision']}: commit {split.commit}; {', '.join(split.names)}")
        reading, _ = read_upload({"items": split.file}, parse_mapping(options["map"]))
        self.print_remarks(reading.report, reading.source_name)
        if options["dry_run"]:
            self.write(f"{len(reading.items)} items could be imported; nothing was saved")
            return
        about = {field: options[field] for field in ABOUT}
        about["source"] = f"{about['source']}\n{split.source}" if about["source"] else split.source
        about["licence"] = about["licence"] or split.licence
        dataset = create_dataset(reading, slug=name, by=self.by, recipe=split.recipe, **about)
        self.print_summary(dataset)
        self.write(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")


def add_hub_verb(verbs: Any) -> None:
    parser = verbs.add_parser("download", help="a split of a dataset on the Hugging Face hub to a new draft")
    parser.add_argument("repository", metavar="OWNER/NAME")
    parser.add_argument("--name", required=True, metavar="SLUG")
    parser.add_argument("--config", default="", metavar="CONFIG", help="the configuration; default: the default one")
    parser.add_argument("--split", default="", metavar="SPLIT", help="such as test; default: all files")
    parser.add_argument("--revision", default="main", metavar="REVISION", help="a branch, a tag or a commit")
    parser.add_argument("--data-file", default="", metavar="PATH", help="a file of the repository, instead of a split")
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="which column is which field")
    parser.add_argument("--dry-run", action="store_true", help="read and report, save nothing")
    for field in ABOUT:
        parser.add_argument(f"--{field}", default="", metavar="TEXT")
