"""`manage.py demo`: a small study from an empty database to published numbers, then the site itself.

A simulated provider on this machine serves the models, with invented prices. It receives the norms and the answers of
the sample data, and the error rates.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from datasets_app.models import Dataset, Item, Norm
from evalsite.lib.ops.commands import BAD_INPUT, WORK_FAILED, OutputCommand
from evalsite.lib.ops.data_folder import SiteInUse, hold_site
from evalsite.lib.ops.installation import COMMAND, IS_INSTALLED, ROOT, build_module_command, get_shipped_folder
from evalsite.lib.ops.supervisor import Child, StartFailed, keep_running
from evalsite.lib.web.sign_in import build_link
from grading_app.results.frames import Frames, load_frames
from grading_app.results.parametric.surface import make_recovery_table
from grading_app.results.statistic_format import (
    format_coefficient,
    format_interval,
    format_share,
    format_share_interval,
)
from grading_app.results.waves import find_pooled_waves
from grading_app.statistics.correlation import pearson
from runs_app.management.started_work import wait_for
from runs_app.models import Endpoint, Experiment, Run, Wave
from runs_app.processes.site_processes import (
    AddressError,
    add_address_options,
    migrate,
    open_listener,
    serve,
    store_simulated_models,
)
from runs_app.simulator import SimulatorConfig, SimulatorProcess, simulator_process
from runs_app.simulator.skill_profiles import read_profiles

USERNAME = "demo"
ENDPOINT = "rehearsal"
# The share of right answers of each model.
SKILLS = {"sim-large": 0.86, "sim-small": 0.61, "sim-judge": 0.93, "sim-latest": 0.86}
UPDATED_SKILLS = SKILLS | {"sim-latest": 0.62}  # After the update of this model.
# US dollars per million tokens, in and out.
PRICES = {"sim-large": ("2.50", "10.00"), "sim-small": ("0.15", "0.60"), "sim-judge": ("0.40", "1.60")}
PRICES |= {"sim-latest": ("0.30", "1.20")}
DATASETS = ("photographs", "questions")
SPACE, SPACE_FILE, SKILL_PROFILE = "reasoning", "reasoning-space.yaml", "reasoning-skills.json"
SPACE_EXPERIMENT = "reasoning-pilot"
DRIFT_EXPERIMENT, WAVES = "drift-pilot", ("before-update", "after-update")
EXPERIMENTS = ("affect-pilot", "questions-pilot", SPACE_EXPERIMENT, DRIFT_EXPERIMENT)


def get_folder() -> Path:
    """Return the folder of the demonstration's files. Create it if needed."""
    path = Path(settings.DATA_DIR) / "demo"
    path.mkdir(parents=True, exist_ok=True)
    return path


def read_password() -> str:
    """Return the stored password of the demonstration's superuser, or "" if there is none."""
    path = get_folder() / "password"
    return path.read_text().strip() if path.exists() else ""


def get_or_create_password() -> str:
    """Return a password of the demonstration's superuser.

    Create the user if needed; reuse a password that still works.
    """
    path = get_folder() / "password"
    user, _ = User.objects.get_or_create(username=USERNAME, defaults={"is_staff": True, "is_superuser": True})
    password = read_password()
    if not password or not user.check_password(password):
        password = secrets.token_urlsafe(9)
        path.touch(mode=0o600)
        path.write_text(password)
        user.set_password(password)
        user.save(update_fields=["password"])
    return password


def build_simulator_config(*, is_updated: bool = False) -> SimulatorConfig:
    """Return the configuration of the simulated provider, at its last port if that is free.

    is_updated: the provider has replaced a model under the same name.
    """
    answers = get_folder() / "answers.jsonl"
    with answers.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in _iterate_answers())
    profiles = (get_shipped_folder("samples") / SKILL_PROFILE,)
    skills = UPDATED_SKILLS if is_updated else SKILLS
    return SimulatorConfig(
        port=_find_port(), latency_ms=60, latency_sigma=0.5, skills=skills, answers=(answers,), profiles=profiles
    )


def _iterate_answers() -> Iterator[dict[str, object]]:
    """Yield the right answers of the sample data: targets by question, norms by the image of the request."""
    items = Item.objects.filter(dataset__slug__in=DATASETS, dataset__version=1)
    for text, target in items.exclude(target="").values_list("input", "target"):
        yield {"text": text, "target": target}
    norms = Norm.objects.filter(item__in=items).exclude(item__image=None)
    for image, dimension, mean, sd in norms.values_list("item__image", "dimension", "mean", "sd"):
        yield {"image": image, "dimension": dimension, "mean": mean, "sd": sd}
    for dataset in Dataset.objects.filter(slug=SPACE, version=1):
        yield from dataset.iterate_answer_key()


def _find_port() -> int:
    endpoint = Endpoint.objects.filter(name=ENDPOINT).first()
    for port in (urlsplit(endpoint.base_url).port or 0 if endpoint else 0, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    raise OSError("no port is free on this machine")


def is_finished() -> bool:
    """Return True if every experiment is planned with its waves and its design's judges, and all trials are done.

    Judges that were added later, and tests of a rubric, are not part of the demonstration.
    """
    experiments = list(Experiment.objects.filter(slug__in=EXPERIMENTS))
    waves = Wave.objects.filter(experiment__slug=DRIFT_EXPERIMENT).count()
    return len(experiments) == len(EXPERIMENTS) and waves >= len(WAVES) and all(map(_is_done, experiments))


def _is_done(experiment: Experiment) -> bool:
    answers = list(experiment.answer_runs)
    verdicts = list(experiment.runs.filter(condition__grade_condition__grader__name__in=experiment.graders))
    return (
        bool(answers)
        and len(verdicts) >= len(experiment.graders)
        and all(run.n_done == run.n_trials for run in (*answers, *verdicts))
    )


def describe_results(slug: str) -> Iterator[str]:
    """Yield a line for each number of an experiment.

    It is the correlation with the norms, the share of right answers, or the change from one wave to the next.
    """
    experiment = Experiment.objects.get(slug=slug)
    if slug == DRIFT_EXPERIMENT:
        pooled = find_pooled_waves(experiment, None)
        yield from pooled.sentences[1:] if pooled else ()
        return
    if slug == SPACE_EXPERIMENT:
        yield make_recovery_table(experiment, read_profiles(get_shipped_folder("samples") / SKILL_PROFILE)).sentence
    frames = load_frames(experiment)
    yield from _describe_norm_agreement(frames)
    for line in frames.lines:
        if not line.measure.is_rating:
            share, interval = format_share(line.score.mean), format_share_interval(line.score.low, line.score.high)
            yield f"{line.condition:<28} {line.measure.label:<28} {share:>7}  {interval}"


def _describe_norm_agreement(frames: Frames) -> Iterator[str]:
    for condition, label in frames.labels.items():
        for dimension, rated_dimension in frames.dimensions.items():
            pairs = [pair for pair in frames.norm_pairs if (pair.condition, pair.dimension) == (condition, dimension)]
            correlation = (
                pearson([pair.model_mean for pair in pairs], [pair.human_mean for pair in pairs]) if pairs else None
            )
            if correlation:
                r = f"r = {format_coefficient(correlation.r)}"
                interval = format_interval(correlation.low, correlation.high)
                yield f"{label:<28} {rated_dimension.title:<12} {r:>9}  {interval}, n = {correlation.n}"


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
            known_password = read_password()
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
        password = get_or_create_password()
        was_finished = is_finished()
        # The worker takes some seconds to start. The steps below continue meanwhile.
        worker = Child("worker", build_module_command("evalsite", "drain"), directory=ROOT)
        with nullcontext() if was_finished else keep_running(worker):
            self._curate()
            models = build_simulator_config()
            store_simulated_models(models)
            with simulator_process(models) as provider:
                self._design(provider)
                self._run()
            # The same port, so that the endpoint and all models keep their names.
            updated = build_simulator_config(is_updated=True)
            store_simulated_models(updated)
            if not was_finished:
                with simulator_process(updated):
                    self._repeat()
        self._publish()
        if not is_finished():
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
        if is_finished():
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
                out = get_folder() / f"{slug}-{table}.{file_format}"
                self._run_command(
                    "export", slug, "--table", table, "--format", file_format, "--out", str(out), silently=True
                )
        self.write(f"  exported to {get_folder()}")
        for slug in EXPERIMENTS:
            self._print_heading(slug)
            for line in describe_results(slug):
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
