"""The `manage.py dataset VERB ...` command: curation from the command line, with the same rules as the admin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.db.models import Count

from datasets_app import curation
from datasets_app.drafts import CurationError
from datasets_app.importing import FileError, parse_mapping
from datasets_app.importing.dataset_writer import create_dataset, save_items, save_norms
from datasets_app.importing.limited_reader import FileToRead, read_norm_table, read_upload
from datasets_app.importing.records import ImportReport
from datasets_app.management.hub_verb import HubVerb, add_hub_verb
from datasets_app.management.parametric_verb import ParametricVerb, add_parametric_verb
from datasets_app.models import Dataset, TransitionError
from datasets_app.models.history import Actor
from datasets_app.parametric.spec import SpaceError
from datasets_app.sampling import STRATEGIES
from evalsite.lib.ops.commands import VerbCommand, add_list_option, refuse_input, resolve_actor


class Command(ParametricVerb, HubVerb, VerbCommand):
    help = "Import, generate, look at, sample, mend, approve, archive, duplicate and delete datasets."
    refusals: ClassVar[tuple[type[Exception], ...]] = (CurationError, TransitionError, FileError, SpaceError)
    by: Actor

    def add_verbs(self, verbs: Any) -> None:
        for add in (_add_reading_verbs, add_hub_verb, add_parametric_verb, _add_item_verbs, _add_state_verbs):
            add(verbs)
        for parser in verbs.choices.values():
            parser.add_argument("--user", default="", metavar="NAME", help="who the history names")

    def handle(self, *args: Any, **options: Any) -> None:
        self.by = resolve_actor(options.get("user", ""))
        super().handle(*args, **options)

    # --- reading -----------------------------------------------------------------------------------------------------

    def do_import(self, file: Path, name: str, **options: Any) -> None:
        files = _open_files(items=file, images=options["images"], norms=options["norms"])
        reading, norms = read_upload(files, parse_mapping(options["map"]))
        self._print_remarks(reading.report, reading.source_name)
        if options["norms"]:
            self._print_remarks(norms.report, options["norms"].name)
        if options["dry_run"]:
            self.say(f"{len(reading.items)} items could be imported; nothing was saved")
            return
        about = {field: options[field] for field in curation.ABOUT}
        dataset = create_dataset(reading, slug=name, by=self.by, norms=norms.norms, **about)
        self._describe(dataset)
        self.say(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")

    def do_norms(self, dataset: str, file: Path, **options: Any) -> None:
        row = _find_dataset(dataset)
        categories = dict(row.items.values_list("key", "category"))
        reading = read_norm_table(FileToRead(file, file.name), categories, parse_mapping(options["map"]))
        self._print_remarks(reading.report, file.name)
        self.say(f"{row}: {save_norms(row, reading.norms, by=self.by)} norms")

    def _print_remarks(self, report: ImportReport, name: str) -> None:
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

    # --- listing and showing -----------------------------------------------------------------------------------------

    def do_list(self, status: str | None, **options: Any) -> None:
        datasets = Dataset.objects.filter(status=status) if status else Dataset.objects.all()
        if options["json"]:
            self.say_json([_describe_facts(dataset) for dataset in datasets])
            return
        for dataset in datasets:
            counts = f"{dataset.active_count}/{dataset.item_count}"
            self.say(f"{dataset!s:<30} {dataset.status:<9} {counts:>13}  {dataset.title}")

    def do_show(self, dataset: str, **options: Any) -> None:
        row = _find_dataset(dataset)
        if options["json"]:
            self.say_json(_describe_facts(row))
        else:
            self._describe(row)
            self._show_history(row)
        if options["items"]:
            for item in row.items.all():
                self.say(f"  {item.key:<30} {item.category:<16} {'excluded: ' + item.note if item.excluded else ''}")

    def _describe(self, dataset: Dataset) -> None:
        excluded = dataset.item_count - dataset.active_count
        self.say(f"{dataset} ({dataset.status}): {dataset.active_count} active items, {excluded} excluded")
        for category, count in _list_categories(dataset).items():
            self.say(f"  {category or '(no category)'}: {count}")
        if dataset.content_hash:
            holds = "holds" if curation.hash_stored_items(dataset) == dataset.content_hash else "DOES NOT HOLD"
            self.say(f"  content hash {dataset.content_hash} {holds}")

    def _show_history(self, dataset: Dataset) -> None:
        for change in dataset.history:
            reason = f": {change.reason}" if change.reason else ""
            self.say(f"  {change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor}  {change.what} {change.change}{reason}")

    # --- drawing and changing ----------------------------------------------------------------------------------------

    def do_generate(self, dataset: str, name: str, strategy: Any, n: int | None, seed: int, **options: Any) -> None:
        parent = _find_dataset(dataset)
        self._describe(curation.sample_dataset(parent, slug=name, strategy=strategy, n=n, seed=seed, by=self.by))

    def do_add(self, dataset: str, keys: list[str], reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        if options["file"]:
            files = _open_files(items=options["file"], images=options["images"])
            reading, _ = read_upload(files, parse_mapping(options["map"]))
            self._print_remarks(reading.report, reading.source_name)
            save_items(draft, reading, by=self.by)
        else:
            source = _find_dataset(options["from"]) if options["from"] else draft.parent
            if source is None:
                raise CurationError(f"from: say which dataset the items are in; {draft} was not drawn from one")
            curation.add_items(draft, keys, source=source, by=self.by, reason=reason)
        self._describe(draft)

    def do_remove(self, dataset: str, keys: list[str], reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        curation.remove_items(draft, keys, by=self.by, reason=reason)
        self._describe(draft)

    def do_exclude(self, dataset: str, keys: list[str], note: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        curation.exclude_items(draft, keys, by=self.by, reason=note)
        self._describe(draft)

    def do_include(self, dataset: str, keys: list[str], note: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        curation.include_items(draft, keys, by=self.by, reason=note)
        self._describe(draft)

    def do_replace(self, dataset: str, key: str, seed: int, reason: str, **options: Any) -> None:
        new = curation.replace_item(_find_dataset(dataset), key, by=self.by, seed=seed, reason=reason)
        self.say(f"{dataset}: {key} is replaced by {new}")

    def do_reshuffle(self, dataset: str, seed: int, reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        curation.reshuffle_items(draft, by=self.by, seed=seed, reason=reason)
        self._describe(draft)

    # --- states ------------------------------------------------------------------------------------------------------

    def do_approve(self, dataset: str, reason: str, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        curation.approve(row, by=self.by, reason=reason)
        self._describe(row)

    def do_describe(self, dataset: str, reason: str, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        about = {field: options[field] for field in curation.ABOUT if options[field] is not None}
        if not about:
            refuse_input(f"say what to change: {', '.join(f'--{field} TEXT' for field in curation.ABOUT)}")
        changed = curation.change_description(row, about, by=self.by, reason=reason)
        self.say(f"{row}: changed {', '.join(changed)}" if changed else f"{row}: nothing is different")

    def do_archive(self, dataset: str, reason: str, **options: Any) -> None:
        found = _find_dataset(dataset, exact=True)
        curation.archive(found, by=self.by, reason=reason)
        self.say(f"{found} is archived")

    def do_duplicate(self, dataset: str, name: str, reason: str, **options: Any) -> None:
        self._describe(curation.duplicate(_find_dataset(dataset), by=self.by, slug=name, reason=reason))

    def do_delete(self, dataset: str, reason: str, yes: bool, **options: Any) -> None:
        found = _find_dataset(dataset, exact=True)
        self.confirm(f"Delete {found} with its {found.item_count} items?", yes)
        curation.delete_draft(found, by=self.by, reason=reason)
        self.say(f"{dataset} is deleted")


def _open_files(**paths: Path | None) -> dict[str, FileToRead]:
    return {part: FileToRead(Path(path), Path(path).name) for part, path in paths.items() if path is not None}


def _find_dataset(reference: str, *, exact: bool = False) -> Dataset:
    """Return the dataset with this name. With `exact`, the version is required, to avoid changing the wrong one."""
    if exact and "@" not in reference:
        refuse_input(f"which version of {reference!r}? Write {reference}@1")
    row: Dataset | None = Dataset.objects.named(reference).select_related("parent").first()
    if row is None:
        refuse_input(f"there is no dataset {reference!r}; `dataset list` names them")
    return row


def _list_categories(dataset: Dataset) -> dict[str, int]:
    counts = dataset.items.active().order_by("category").values_list("category").annotate(Count("pk"))
    return dict(counts)


def _describe_facts(dataset: Dataset) -> dict[str, Any]:
    return {
        "dataset": str(dataset),
        "status": dataset.status,
        "title": dataset.title,
        "items": dataset.item_count,
        "active": dataset.active_count,
        "categories": _list_categories(dataset),
        "content_hash": dataset.content_hash,
        "source": dataset.source,
        "licence": dataset.licence,
        "source_name": dataset.source_name,
        "source_sha256": dataset.source_sha256,
        "mapping": dataset.mapping,
        "recipe": dataset.recipe,
        "parent": str(dataset.parent) if dataset.parent else None,
        "created_at": dataset.created_at.isoformat(),
        "approved_at": dataset.approved_at.isoformat() if dataset.approved_at else None,
    }


def _add_reading_verbs(verbs: Any) -> None:
    parser = verbs.add_parser("import", help="import a file as a new dataset, or as the next version of a name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", required=True, metavar="SLUG")
    _add_source_options(parser)
    parser.add_argument("--norms", type=Path, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="check the file and save nothing")
    for field in curation.ABOUT:
        parser.add_argument(f"--{field}", default="", metavar="TEXT")
    parser = _add_verb(verbs, "norms", "import human norms from a file into a draft")
    parser.add_argument("file", type=Path)
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="map a field to a column or an expression")
    parser = verbs.add_parser("list", help="list all datasets")
    parser.add_argument("--status", choices=Dataset.Status.values)
    parser.add_argument("--json", action="store_true")
    parser = _add_verb(verbs, "show", "show a dataset, its hash and its history")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--items", action="store_true")


def _add_item_verbs(verbs: Any) -> None:
    parser = _add_verb(verbs, "generate", "draw a sample of a dataset as a new draft")
    parser.add_argument("--name", required=True, metavar="SLUG")
    parser.add_argument("--strategy", choices=STRATEGIES, default="stratified")
    parser.add_argument("--n", type=int)
    parser.add_argument("--seed", type=int, default=42)
    parser = _add_verb(verbs, "add", "add items of another dataset, or of a file, to a draft", reason=True)
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--from", metavar="SLUG@V", help="default: the dataset from which the draft was drawn")
    parser.add_argument("--file", type=Path)
    _add_source_options(parser)
    _add_verb(verbs, "remove", "remove items from a draft", reason=True).add_argument("keys", nargs="+", metavar="KEY")
    for verb, is_required in (("exclude", True), ("include", False)):
        parser = _add_verb(verbs, verb, f"{verb} items of a draft")
        parser.add_argument("keys", nargs="+", metavar="KEY")
        parser.add_argument("--note", required=is_required, default="", metavar="TEXT")
    parser = _add_verb(verbs, "replace", "replace an item of a sampled draft by another from its category", reason=True)
    parser.add_argument("key", metavar="KEY")
    parser.add_argument("--seed", type=int, default=42)
    _add_verb(verbs, "reshuffle", "draw a sampled draft again", reason=True).add_argument(
        "--seed", type=int, required=True
    )


def _add_state_verbs(verbs: Any) -> None:
    for verb, help_text in (("approve", "freeze a draft permanently"), ("archive", "withdraw an approved dataset")):
        _add_verb(verbs, verb, help_text).add_argument("--reason", required=True, metavar="TEXT")
    parser = _add_verb(verbs, "describe", "change title, description, source or licence", reason=True)
    for field in curation.ABOUT:
        parser.add_argument(f"--{field}", metavar="TEXT")
    parser = _add_verb(verbs, "duplicate", "copy the active items to a new draft", reason=True)
    parser.add_argument("--name", default="", metavar="SLUG", help="default: the next version of the same name")
    _add_verb(verbs, "delete", "delete a draft", reason=True).add_argument("--yes", action="store_true")


def _add_verb(verbs: Any, name: str, help_text: str, *, reason: bool = False) -> Any:
    parser = verbs.add_parser(name, help=help_text)
    parser.add_argument("dataset", metavar="SLUG@V")
    if reason:
        parser.add_argument("--reason", default="", metavar="TEXT")
    return parser


def _add_source_options(parser: Any) -> None:
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="map a field to a column or an expression")
    parser.add_argument("--images", type=Path, metavar="DIR_OR_ZIP")
