"""Snapshots and bundles that verify and lie: each is refused with a sentence, or changes nothing for anybody else."""

import logging
import time
from collections import Counter
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.core.management import call_command
from django.db import transaction
from django.test import Client, override_settings
from django.urls import NoReverseMatch, reverse

from datasets_app.importing.records import FileError
from datasets_app.models import Dataset
from evalsite.lib.text.hashing import hash_content
from grading_app.grading.consistency_check import compare_counters
from grading_app.publish.export.bundle_kinds import DATASET, DESIGN
from grading_app.publish.export.row_checks import RowError, check_row, read_row
from grading_app.publish.export.snapshot_check import verify
from grading_app.publish.export.snapshots import write_study
from grading_app.publish.export.study_rows import ARRIVAL, TABLES, build_rules
from grading_app.study_import import snapshot_import
from grading_app.study_import.upload_reader import SnapshotFile, load_rules
from runs_app.models import Experiment, Run, Trial
from runs_app.models.designs import Versioned
from tests import factories
from tests.factories.imports import import_snapshot
from tests.factories.spaces import make_space_experiment
from tests.integration.export.test_bundles import make_study as make_rated_study
from tests.integration.pages.test_access_matrix import MATRIX, list_served_names
from tests.integration.study_import.test_snapshot_import import make_study
from tests.system.fuzz.forged_snapshots import forge, list_mutations, parse_line, read_parts, write_archive

# Each import is a transaction of its own, because a transaction keeps the locks of the sequences that it has used.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.ignore_template_errors]
# A study with rows in every table, by `factories.studies.make_whole_study`, which needs real transactions.
WHOLE = Path(__file__).parent / "studies" / "whole.zip"
STUDIES = {"answers": make_study, "ratings": make_rated_study, "space": make_space_experiment}
SOURCES = ["whole", *STUDIES, DATASET, DESIGN, "analysis"]
SECONDS_EACH = 0.1  # Of a source, for each wanted request.
MODELS = {part.table: part.model for part in TABLES}


@pytest.fixture(scope="module")
def files(django_db_setup, django_db_blocker, tmp_path_factory):
    """Return a snapshot or bundle of each kind, of another site."""
    folder = tmp_path_factory.mktemp("other_site")
    for name, make in STUDIES.items():
        with django_db_blocker.unblock(), override_settings(MEDIA_ROOT=folder / "media"), transaction.atomic():
            experiment = make()
            out = BytesIO()
            write_study(experiment, out, by="test")
            (folder / f"{name}.zip").write_bytes(out.getvalue())
            if name == "ratings":
                dataset = experiment.dataset
                for kind, source in ((DATASET, str(dataset)), (DESIGN, experiment.slug), ("analysis", experiment.slug)):
                    call_command("bundle", kind, source, "--out", str(folder / f"{kind}.zip"))
            transaction.set_rollback(True)
    (folder / "whole.zip").write_bytes(WHOLE.read_bytes())
    return folder


@pytest.fixture(autouse=True)
def a_site_of_others(monkeypatch, settings, tmp_path):
    """A site with a study of somebody else. The check runs in this process, and the attacker knows every hash."""
    settings.MEDIA_ROOT = tmp_path / "media"
    logging.disable(logging.CRITICAL)  # Pages that this person may not open.
    rules = load_rules(build_rules())
    monkeypatch.setattr(snapshot_import, "read_snapshot", lambda path: SnapshotFile(path, verify(path, rules)))
    monkeypatch.setattr(Dataset, "hash_items", lambda dataset: dataset.content_hash)
    factories.make_experiment("theirs", dataset=factories.make_dataset("their-items"), sharing="group")
    yield
    logging.disable(logging.NOTSET)


class Laboratory:
    """A site that forged files are imported into. Each import is taken back."""

    def __init__(self, path, folder):
        self.parts, self.folder = read_parts(path), folder
        self.rules = load_rules(build_rules())
        self.importer = factories.make_user("importer", "Researcher")
        self.clients = {}
        for user in (self.importer, factories.make_user("chief", superuser=True)):
            self.clients[user.username] = Client(raise_request_exception=False)
            self.clients[user.username].force_login(user)
        self.counts, self.accepted, self.findings, self.refusal = Counter(), [], [], ""
        self.others = self.fingerprint_others()

    def try_alone(self, mutation):
        """Import a file with this mutation, and record whether it was refused with a sentence or accepted."""
        column = str(mutation).partition(" = ")[0]
        if self.is_refused_by_its_row(mutation):
            self.counts[column, "refused"] += 1
            return
        outcome = self.run_import([mutation], lambda imported: self.check_rows())
        self.counts[column, outcome] += 1
        if outcome == "accepted":
            self.accepted.append(mutation)

    def is_refused_by_its_row(self, mutation):
        """Return whether the first check of an import refuses the row, which names the column."""
        if mutation.part == "names.json":
            return False
        table = mutation.part.removeprefix("rows/").removesuffix(".jsonl")
        line = forge(self.parts, mutation)[mutation.part].splitlines()[mutation.place]
        try:
            check_row(read_row(line), table, self.rules[table])
        except RowError:
            return True
        return False

    def run_import(self, mutations, check):
        """Import a file with these mutations, check the site, and take everything back."""
        parts = self.parts
        for mutation in mutations:
            parts = rehash(forge(parts, mutation), mutation)
        path = write_archive(parts, self.folder / "forged.zip")
        label = "; ".join(map(str, mutations))
        with transaction.atomic():
            try:
                with transaction.atomic():
                    imported = import_snapshot(path, self.importer)
            except FileError as error:
                self.refusal = str(error)
                if len(str(error)) < 20:
                    self.findings.append(f"{label}: refused without a sentence: {error}")
                return "refused"
            except Exception as error:  # noqa: BLE001 - any other error is a finding.
                self.findings.append(f"{label}: {type(error).__name__}: {error}")
                return "broken"
            self.findings += [f"{label}: {problem}" for problem in check(imported)]
            transaction.set_rollback(True)
        return "accepted"

    def check_rows(self):
        yield from map(str, compare_counters())
        for experiment in Experiment.objects.all():
            if not 0 <= experiment.spent_usd < 10**8 or experiment.reserved_usd < 0:
                yield f"{experiment} has spent {experiment.spent_usd}, and reserved {experiment.reserved_usd}"
        if self.fingerprint_others() != self.others:
            yield "a row of others changed, or a definition can be chosen by others"

    def fingerprint_others(self):
        """Return the rows of others and the definitions that anybody can choose, as a value to compare."""
        theirs = list(Experiment.objects.filter(slug="theirs").values())
        definitions = {
            model: (
                sorted(model.objects.filter(status="approved").values_list("pk", flat=True)),
                sorted(row.pk for name in model.objects.values_list("name", flat=True).distinct()
                       for row in model.objects.named(name).exclude(status="draft")),
            )
            for model in ARRIVAL if issubclass(model, Versioned)
        }  # fmt: skip
        return theirs, definitions

    def check_pages(self, imported):
        yield from self.check_rows()
        for address in list_pages(imported):
            for name, client in self.clients.items():
                response: Any = client.get(address)
                with suppress(AttributeError):
                    b"".join(response.streaming_content)
                if response.status_code >= 500:
                    error = response.exc_info[1] if getattr(response, "exc_info", None) else ""
                    yield f"{name} {address}: {response.status_code} {type(error).__name__}: {str(error)[:200]}"

    def open_pages(self, mutations):
        """Import the accepted mutations together and open every page. Split a group that fails."""
        before = len(self.findings)
        outcome = self.run_import(mutations, self.check_pages)
        if len(mutations) > 1 and (outcome != "accepted" or len(self.findings) > before):
            del self.findings[before:]
            middle = len(mutations) // 2
            self.open_pages(mutations[:middle])
            self.open_pages(mutations[middle:])

    def report(self):
        columns = sorted({column for column, _ in self.counts})
        outcomes = ("accepted", "refused", "broken")
        lines = [
            f"{column}: " + ", ".join(f"{self.counts[column, word]} {word}" for word in outcomes) for column in columns
        ]
        totals = {word: sum(n for (_, outcome), n in self.counts.items() if outcome == word) for word in outcomes}
        return "\n".join([*lines, f"all: {totals}", f"{len(self.findings)} findings", *self.findings[:60]])


def rehash(parts, mutation):
    """Return the parts with the hash that the changed definition has, as the attacker computes it."""
    model = MODELS.get(mutation.part.removeprefix("rows/").removesuffix(".jsonl"))
    if model is None or not issubclass(model, Versioned) or mutation.column == "content_hash":
        return parts
    row = parse_line(parts, mutation.part, mutation.place)
    names = {field.attname for field in model._meta.concrete_fields} - {"id"}
    try:
        content_hash = hash_content(model(**{name: value for name, value in row.items() if name in names}).content)
    except Exception:  # noqa: BLE001 - hostile content has no hash.
        return parts
    return forge(parts, type(mutation)(mutation.part, "content_hash", mutation.place, content_hash))


def list_pages(imported):
    """Return the addresses of shared lists, of the admin, and of the imported study and its rows."""
    dataset, experiment = imported.dataset, imported.experiment
    values = {"dataset": dataset.slug, "version": dataset.version}
    if experiment is not None:
        run = Run.objects.filter(experiment=experiment).order_by("pk").first()
        trial = Trial.objects.filter(run=run).order_by("pk").first() if run else None
        condition, manifest = experiment.conditions.first(), experiment.manifests.first()
        rows = {"run": run, "trial": trial, "condition": condition, "manifest": manifest}
        values |= {"slug": experiment.slug, **{name: row.pk for name, row in rows.items() if row is not None}}
    names = list_served_names()
    for name, row in MATRIX.items():
        words = row.args.split()
        if row.method == "get" and name in names and all(word in values for word in words):
            yield reverse(name, args=[values[word] for word in words])
    for model in admin.site._registry:
        stem = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        with suppress(NoReverseMatch):
            yield reverse(f"{stem}_changelist")
            if model._meta.app_label in {app.label for app in apps.get_app_configs() if app.label.endswith("_app")}:
                for row in model._default_manager.order_by("-pk")[:2]:
                    yield reverse(f"{stem}_change", args=[row.pk])


@pytest.mark.parametrize("source", SOURCES)
def test_a_forged_file_is_refused_or_harmless(files, tmp_path, requests_wanted, chance, source):
    """A sample of the mutations, for half a minute a source; `--fuzz-requests 100000` tries all of them."""
    laboratory = Laboratory(files / f"{source}.zip", tmp_path)
    assert laboratory.run_import([], laboratory.check_pages) == "accepted", laboratory.refusal
    assert not laboratory.findings, laboratory.report()
    mutations = list_mutations(laboratory.parts)
    wanted = max(20, requests_wanted // 2)
    deadline = time.monotonic() + requests_wanted * SECONDS_EACH
    for mutation in chance.sample(mutations, min(len(mutations), wanted)):
        laboratory.try_alone(mutation)
        if time.monotonic() > deadline:
            break
    groups = {}
    for mutation in laboratory.accepted:
        place = next(n for n in range(10_000) if (n, mutation.part, mutation.column) not in groups)
        groups[place, mutation.part, mutation.column] = mutation
    for number in sorted({place for place, *_ in groups})[: max(1, requests_wanted // 300)]:
        laboratory.open_pages([mutation for (place, *_), mutation in groups.items() if place == number])
    print(f"\n{source}, {len(mutations)} mutations: {laboratory.report()}")
    assert not laboratory.findings, laboratory.report()
    assert any(outcome == "refused" for _, outcome in laboratory.counts)
