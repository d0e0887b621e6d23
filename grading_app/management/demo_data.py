"""The data of the demonstration: its user, its simulated models, and its results.

A simulated provider on this machine serves the models, with invented prices. It receives the norms and the answers of
the sample data, and the error rates.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User

from datasets_app.models import Dataset, Item, Norm
from evalsite.lib.ops.installation import get_shipped_folder
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
from runs_app.models import Endpoint, Experiment, Wave
from runs_app.simulator import SimulatorConfig
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
