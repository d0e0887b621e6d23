"""`manage.py demo`: a small study from an empty database to published numbers, then the site itself."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from datasets_app.models import Dataset
from evalsite.lib.ops.commands import BAD_INPUT, WORK_FAILED, OutputCommand
from evalsite.lib.ops.data_folder import SiteInUse, hold_site
from evalsite.lib.ops.installation import COMMAND, IS_INSTALLED, ROOT, build_module_command, get_shipped_folder
from evalsite.lib.ops.supervisor import Child, StartFailed, keep_running
from evalsite.lib.web.sign_in import build_link
from grading_app.management import demo_data
from grading_app.management.demo_data import (
    DATASETS,
    DRIFT_EXPERIMENT,
    ENDPOINT,
    EXPERIMENTS,
    PRICES,
    SPACE,
    SPACE_EXPERIMENT,
    SPACE_FILE,
    USERNAME,
    WAVES,
)
from runs_app.management.started_work import wait_for
from runs_app.models import Experiment, Run
from runs_app.processes.site_processes import (
    AddressError,
    add_address_options,
    migrate,
    open_listener,
    serve,
    store_simulated_models,
)
from runs_app.simulator import SimulatorProcess, simulator_process

SAMPLES = get_shipped_folder("samples")
AGAIN = "evalsite demo" if IS_INSTALLED else "make demo"
IMPORTS = {
    "photographs": ["photographs.csv", "--images", "photographs", "--norms", "norms.csv"],
    "questions": ["questions.jsonl"],
}
DESCRIPTIONS = {
    "photographs": ("Photographs for rating, with made-up norms", "CC0 and public domain, by item"),
    "questions": ("Questions with targets and choices", "CC0"),
}
KEY_NOTICE = "A provider's key is in the environment. The demonstration does not use it: its models are simulated."
KEYS = ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


class Command(OutputCommand):
    help = "Run a complete study on the sample data with simulated models, then serve the site."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-serve", action="store_true", help="stop after the study")
        add_address_options(parser)

    def handle(self, *args: Any, no_serve: bool, host: str, port: int, **options: Any) -> None:
        try:
            with (
                hold_site(settings.DATA_DIR) as store_address,
                nullcontext() if no_serve else open_listener(host, port) as listener,
            ):
                password = self._demonstrate()
                if listener is not None:

                    def announce(url: str) -> None:
                        store_address(url)
                        self._print_address(url, password, f"Ctrl-C stops it; `{AGAIN}` continues with the stored data")

                    serve(listener, drains=settings.DRAINS, on_ready=announce)
        except SiteInUse as error:
            known_password = demo_data.read_password()
            if no_serve or not error.url or not known_password:
                raise CommandError(str(error), returncode=BAD_INPUT) from None
            self._print_address(error.url, known_password, "It already runs; this command started nothing")
        except AddressError as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from None
        except StartFailed as error:
            raise CommandError(str(error), returncode=WORK_FAILED) from None

    def _demonstrate(self) -> str:
        """Run the study, and store the simulated models for `serve`. Return the password for the site."""
        self.write("You can type these commands yourself, or do the same in the browser.")
        if any(os.environ.get(key) for key in KEYS):
            self.write(KEY_NOTICE)
        migrate()
        password = demo_data.get_or_create_password()
        is_finished = demo_data.is_finished()
        # The worker takes some seconds to start. The steps below continue meanwhile.
        with nullcontext() if is_finished else keep_running(_build_worker_process()):
            self._curate()
            models = demo_data.build_simulator_config()
            store_simulated_models(models)
            with simulator_process(models) as provider:
                self._design(provider)
                self._run()
            # The same port, so that the endpoint and all models keep their names.
            updated = demo_data.build_simulator_config(is_updated=True)
            store_simulated_models(updated)
            if not is_finished:
                with simulator_process(updated):
                    self._repeat()
        self._publish()
        if not demo_data.is_finished():
            raise CommandError("not every trial is done", returncode=WORK_FAILED)
        return password

    # --- the steps of the study -------------------------------------------------------------------------------------

    def _curate(self) -> None:
        self._print_heading("Curate")
        for slug in DATASETS:
            dataset = Dataset.objects.named(f"{slug}@1").first()
            if dataset is None:
                title, licence = DESCRIPTIONS[slug]
                about = ("--title", title, "--source", "shipped samples, see samples/SOURCES.md", "--licence", licence)
                self._run_command("dataset", "import", *_locate_samples(IMPORTS[slug]), "--name", slug, *about)
            if dataset is None or dataset.status == Dataset.Status.DRAFT:
                self._run_command("dataset", "approve", f"{slug}@1", "--reason", "the sample data")
        self._generate()
        if not Dataset.objects.filter(slug="photographs-small").exists():
            draw = ("--strategy", "stratified", "--n", "12", "--seed", "7")
            self._run_command("dataset", "generate", "photographs@1", "--name", "photographs-small", *draw)

    def _generate(self) -> None:
        dataset = Dataset.objects.named(f"{SPACE}@1").first()
        if dataset is None:
            title = ("--title", "Three parametric tasks over a space of difficulty")
            self._run_command("dataset", "parametric", str(SAMPLES / SPACE_FILE), "--name", SPACE, *title)
        if dataset is None or dataset.status == Dataset.Status.DRAFT:
            self._run_command("dataset", "approve", f"{SPACE}@1", "--reason", "the sample space")

    def _design(self, provider: SimulatorProcess) -> None:
        self._print_heading("Design")
        self._run_command("endpoint", "set", ENDPOINT, "--provider", "openai", "--base-url", provider.url)
        for model, (price_in, price_out) in PRICES.items():
            prices = ("--input-price", price_in, "--output-price", price_out, "--price-source", "made up for the demo")
            self._run_command("model", "set", model, "--endpoint", ENDPOINT, "--model", model, *prices)
        for slug in EXPERIMENTS:
            if not Experiment.objects.filter(slug=slug).exists():
                self._run_command("experiment", "create", str(SAMPLES / f"{slug}.yaml"), "--user", USERNAME)

    def _run(self) -> None:
        self._print_heading("Run")
        if demo_data.is_finished():
            self.write("  all trials are already done; none is paid for twice")
            return
        for slug in EXPERIMENTS:
            wave = ("--wave", WAVES[0]) if slug == DRIFT_EXPERIMENT else ()
            self._run_command("experiment", "launch", slug, *wave, "--yes", "--user", USERNAME)
        wait_for(self, Run.objects.filter(experiment__slug__in=EXPERIMENTS).exclude(experiment__slug=SPACE_EXPERIMENT))
        self.write("  in rounds, until every point is decided:")
        wait_for(self, Run.objects.filter(experiment__slug=SPACE_EXPERIMENT))
        self._print_heading("Grade")
        for slug in EXPERIMENTS:
            self._run_command("grade", slug, "--yes")

    def _repeat(self) -> None:
        """Run an experiment again, after the provider has updated its model."""
        self._print_heading("Repeat")
        self._run_command("experiment", "launch", DRIFT_EXPERIMENT, "--wave", WAVES[1], "--yes", "--user", USERNAME)
        wait_for(self, Run.objects.filter(experiment__slug=DRIFT_EXPERIMENT))
        self._run_command("grade", DRIFT_EXPERIMENT, "--yes")

    def _publish(self) -> None:
        self._print_heading("Read, publish")
        self._run_command("reconcile")
        for slug in EXPERIMENTS:
            for table, file_format in (
                ("trials", "csv"),
                ("trials", "parquet"),
                ("gradings", "csv"),
                ("ledger", "csv"),
            ):
                out = demo_data.get_folder() / f"{slug}-{table}.{file_format}"
                self._run_command(
                    "export", slug, "--table", table, "--format", file_format, "--out", str(out), silently=True
                )
        self.write(f"  exported to {demo_data.get_folder()}")
        for slug in EXPERIMENTS:
            self._print_heading(slug)
            for line in demo_data.describe_results(slug):
                self.write(f"  {line}")

    # --- output -----------------------------------------------------------------------------------------------------

    def _print_heading(self, text: str) -> None:
        self.stdout.write(f"\n{text}", self.style.MIGRATE_HEADING)

    def _run_command(self, *words: str, silently: bool = False) -> None:
        """Print a command as people type it, run it, and print its output."""
        output = StringIO()
        if not silently:
            here = f"{Path.cwd()}/"
            self.write(f"$ {COMMAND} {shlex.join(word.removeprefix(here) for word in words)}")
        call_command(*words, stdout=output, stderr=self.stderr._out)
        if not silently:
            self.write("".join(f"  {line}\n" for line in output.getvalue().splitlines() if line.strip()).rstrip("\n"))

    def _print_address(self, url: str, password: str, note: str) -> None:
        link = build_link(url, User.objects.get(username=USERNAME))
        lines = [f"Evalsite is at  {url}", f"sign in at      {link}", "                (valid once, for an hour)"]
        lines += [f"or log in as    {USERNAME}", f"password        {password}", note]
        width = max(map(len, lines)) + 4
        box = ["", "┌" + "─" * width + "┐", *(f"│  {line:<{width - 2}}│" for line in lines), "└" + "─" * width + "┘"]
        self.write("\n".join(box))
        self.stdout.flush()


def _locate_samples(words: list[str]) -> list[str]:
    return [word if word.startswith("--") else str(SAMPLES / word) for word in words]


def _build_worker_process() -> Child:
    return Child("worker", build_module_command("evalsite", "drain"), directory=ROOT)
