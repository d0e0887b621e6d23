"""Every page and file shows the same mean, interval, n and p of a condition on a measure.

The measures are those that once had two answers: a judge on a scale from 0 to 10 that gave only 0 and 1, imported
scores from 0 to 100, a repeated share, ratings from 1 to 7, and a panel.
"""

import csv
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.urls import reverse
from scipy import stats

from grading_app.models import CachedAggregate, GradeCondition, Grading, Panel
from grading_app.publish.export.file_formats import export_chunks
from grading_app.publish.export.snapshots import build_result_facts
from grading_app.publish.export.wide_tables import make_unique_names
from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import TableBlock
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.comparison.condition_scores import pair_scores
from grading_app.results.comparison.condition_sides import list_sides
from grading_app.results.frames import estimate_conditions, load_frames
from grading_app.results.headlines import load_headlines
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.raters.verdict_stats import read_scores
from grading_app.results.scope import ScopeForm
from grading_app.results.scores import estimate, list_measures, load_scores
from grading_app.results.waves import compare_scores
from runs_app.models import Experiment, Run, Trial
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.judges import make_grader
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
ITEMS = 20


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(*, samples=1, dimensions=()):
    """Return an experiment of two models. The answers of `b` are a little better."""
    experiment = factories.make_experiment(
        "study", dataset=factories.make_dataset("study-items", ITEMS), samples=samples, dimensions=list(dimensions),
        models=[factories.make_model(name) for name in "ab"],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        gain = run.condition.model.name == "b"
        factories.plan_trials(
            run,
            answer=lambda item, dimension, sample, gain=gain: {
                "answer": f"{item.position} {sample}",
                **({"rating": 1 + (item.position * 5 + sample) % 6 + gain} if dimension else {}),
            },
        )
    return experiment


def is_better(trial):
    return trial.run.condition.model.name == "b"


def grade_as_strict_judge(experiment):
    rubric = make_scale_rubric(low=0, high=10)
    make_gradings(experiment, "strict", lambda trial: float(trial.item.position % 2 or is_better(trial)), rubric=rubric)


def grade_as_imported_scores(experiment):
    draw = np.random.default_rng(3)
    condition = make_gradings(
        experiment, "acc", lambda trial: 50 + 5 * is_better(trial) + float(draw.normal(0, 12)), kind="rule"
    )
    GradeCondition.objects.filter(pk=condition.pk).update(parameters={"imported": "log"})


def grade_as_imported_shares(experiment):
    condition = make_gradings(
        experiment, "match", lambda trial: float(trial.item.position % 3 > 0 or is_better(trial)), kind="rule"
    )
    GradeCondition.objects.filter(pk=condition.pk).update(parameters={"imported": "log"})


def grade_as_repeated_share(experiment):
    draw = np.random.default_rng(5)
    make_gradings(
        experiment, "exact_match", lambda trial: float(draw.random() < 0.5 + 0.3 * is_better(trial)), kind="rule"
    )


def grade_as_wide_judge(experiment):
    rubric = make_scale_rubric("wide", low=1, high=5)
    make_gradings(experiment, "wide", lambda trial: 1 + (trial.item.position + is_better(trial)) % 5, rubric=rubric)


def grade_as_panel(experiment):
    rubric = make_scale_rubric("bench", low=1, high=5)
    panel = Panel.objects.create(name="bench", rule="mean")
    panel.graders.set([make_grader(name, rubric=rubric, model=factories.make_model(name)) for name in ("one", "two")])
    condition = make_gradings(
        experiment, "bench", lambda trial: 1 + (trial.item.position + is_better(trial)) % 9 / 2, kind="panel"
    )
    GradeCondition.objects.filter(pk=condition.pk).update(panel=panel, parameters={"rule": "mean", "members": []})


STUDIES = {
    "judge 0 to 10": (grade_as_strict_judge, {}, False),
    "imported 0 to 100": (grade_as_imported_scores, {}, False),
    "imported 0 and 1": (grade_as_imported_shares, {}, True),
    "repeated share": (grade_as_repeated_share, {"samples": 3}, True),
    "judge 1 to 5": (grade_as_wide_judge, {}, False),
    "panel 1 to 5": (grade_as_panel, {}, False),
    "ratings 1 to 7": (lambda experiment: None, {}, False),
}


@dataclass(frozen=True)
class Study:
    """An experiment, and what several tests read of it: computed once, because it takes longer than the tests."""

    experiment: object
    is_share: bool
    measure: object
    board: object  # The leaderboard without a baseline.
    records: list  # The estimate of each condition.
    analysis: dict  # The tables of the analysis, by name.


@shared_rows(params=STUDIES)
def study(param):
    grade, design, is_share = STUDIES[param]
    if param == "ratings 1 to 7":
        design = {"dimensions": [factories.make_dimension("valence")]}
    experiment = make_study(**design)
    grade(experiment)
    (measure,) = list_measures(experiment)
    board, records = compute_leaderboard(BoardQuery(experiment)), estimate_conditions(experiment)
    return Study(experiment, is_share, measure, board, records, build_analysis(experiment))


def list_numbers(study):
    """Return (where, mean, low, high, n) of each condition, from each reader of scores."""
    experiment = study.experiment
    for row in study.board.rows:
        score = row.scores[study.measure.key]
        yield row.label, "leaderboard", (score.mean, score.low, score.high, score.n)
    frames = load_frames(experiment)
    for line in frames.lines:
        yield line.condition, "scores and figures", (line.score.mean, line.score.low, line.score.high, line.score.n)
    for record in study.records:
        yield record["condition"], "status", (record["mean"], record["low"], record["high"], record["n"])
    labels = {row.condition: row.label for row in study.board.rows}
    for scores in read_scores(list(experiment.grade_conditions.all())).values():
        for one in scores.means:
            yield labels[one.condition], "grading", (one.score.mean, one.score.low, one.score.high, one.score.n)
    for row in study.analysis["descriptives"].rows:
        low, high = row["interval"]
        yield row["condition"], "analysis", (row["mean"], low, high, row["n"])

    yield from list_numbers_of_compare(study)


def list_numbers_of_compare(study):
    """Return the numbers of the stored scores that Compare reads, of each side against the other."""
    (sides,) = list_sides([study.experiment]).values()
    a, b = (side for side in sides if not side.is_whole)
    scores = load_scores(study.experiment, study.measure)
    paired = pair_scores(a, b, study.measure, (scores, scores), missing_is_wrong=False)
    for column, side in enumerate((a, b)):
        score = estimate(paired.scores, paired.measure, column)
        yield side.name, "compare", (score.mean, score.low, score.high, score.n)


def list_numbers_of_files(study):
    """Return the same from commands, the report and the facts of a snapshot."""
    experiment, measure = study.experiment, study.measure
    for line in build_result_facts(experiment)["scores"]:
        yield line["condition"], "snapshot", (line["mean"], line["low"], line["high"], line["n"])
    for line in read_command("analyse", experiment.slug, "--table", "descriptives")["rows"]:
        yield line["condition"], "analyse", (line["mean"], line["interval_low"], line["interval_high"], line["n"])
    for line in read_command("status", experiment.slug, "--json", out=False)["scores"]:
        yield line["condition"], "status command", (line["mean"], line["low"], line["high"], line["n"])
    for block in build_document(experiment).list_blocks(TableBlock):
        if block.table.name.startswith("leaderboard-"):
            for line in block.table.rows:
                low, high = line[f"{measure.key}_ci"]
                yield line["condition"], "report", (line[measure.key], low, high, line[f"{measure.key}_n"])


def read_command(name, *arguments, out=True):
    """Return the JSON that a command writes to a file or prints."""
    with tempfile.TemporaryDirectory() as folder:
        path, printed = Path(folder) / "out.json", io.StringIO()
        call_command(name, *arguments, *(["--format", "json", "--out", str(path)] if out else []), stdout=printed)
        return json.loads(path.read_text() if out else printed.getvalue())


def build_analysis(experiment):
    form = ScopeForm({}, experiment)
    assert form.is_valid(), form.errors
    tables = build_section_tables(load_analysis_data(form.get_scope()))
    return {table.name: table for group in tables.values() for table in group}


def test_each_page_has_the_same_mean_interval_and_n(study):
    numbers = {}
    for condition, where, found in (*list_numbers(study), *list_numbers_of_files(study)):
        numbers.setdefault(condition, {})[where] = found
    assert len(numbers) == 2
    for condition, by_page in numbers.items():
        expected = by_page["leaderboard"]
        mean, low, high, _ = expected
        assert low <= mean <= high
        assert len(by_page) >= 9
        for where, found in by_page.items():
            assert found == pytest.approx(expected, rel=1e-9), (condition, where)
    assert study.board.measures[0].is_share == study.is_share


def test_the_list_of_experiments_shows_the_highest_of_these_means_with_its_interval(study):
    experiment, best = study.experiment, max(study.records, key=lambda record: record["mean"])
    (totals,) = Experiment.objects.filter(pk=experiment.pk).with_totals()
    headline = load_headlines([totals], experiment.owner)[experiment.pk]
    assert (headline.value, headline.label, headline.kind) == (
        pytest.approx(best["mean"]), best["condition"], "share" if study.is_share else "mean",
    )  # fmt: skip
    assert best["text"] == f"{headline.text} [{headline.interval}]"


def test_compare_leaderboard_and_analysis_have_the_same_test_that_scipy_recomputes_from_the_rows(study, client):
    experiment, measure = study.experiment, study.measure
    (row,) = study.analysis["all_tests"].rows
    lowest = min(row.condition for row in study.board.rows)
    by_condition = compute_leaderboard(BoardQuery(experiment, baseline=lowest)).rows
    (baseline,) = [one.baseline[measure.key] for one in by_condition if one.baseline]
    found = (row["difference"], *row["difference_ci"], row["p"])
    change = baseline.pair.change
    assert (change.mean, change.low, change.high, change.p) == pytest.approx(found)
    a, b = load_item_means(experiment, measure)
    if row["test"] == "paired t":
        expected = stats.ttest_rel(b, a)
        assert (row["t"], row["df"], row["p"]) == pytest.approx((expected.statistic, expected.df, expected.pvalue))
    elif row["test"] == "exact McNemar test":
        gained, lost = int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum())
        assert row["p"] == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
    else:
        changed, sums = (b - a)[np.abs(b - a) > 1e-9], np.zeros(1)
        for step in changed:
            sums = np.concatenate([sums - step, sums + step])  # In the end, the sums with all choices of signs.
        assert row["test"] == "sign flips"
        assert row["p"] == pytest.approx(np.mean(np.abs(sums) > abs(changed.sum()) - 1e-9))
    client.force_login(experiment.owner)
    keys = dict(experiment.conditions.filter(stage="generate").values_list("model__name", "pk"))
    address = f"{reverse('compare')}?a={experiment.slug}:{keys['a']}&b={experiment.slug}:{keys['b']}"
    change = client.get(address).context["pair"].change
    assert (change.mean, change.low, change.high, change.p) == pytest.approx(found)
    downloaded = client.get(f"{address}&table=difference&format=csv").content.decode()
    (line,) = csv.DictReader(io.StringIO(downloaded.lstrip("\ufeff")))
    names = ("difference", "difference_ci_low", "difference_ci_high", "p")
    assert tuple(float(line[name]) for name in names) == pytest.approx(found)


def test_the_pages_print_these_numbers(study, client):
    experiment, records = study.experiment, study.records
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=[experiment.slug]))
    results, has_figure = page_text(page), page.context["figure"]["name"] in ("scores", "accuracy")
    client.get(reverse("experiment_analysis", args=[experiment.slug]))  # It requests the tables from a worker.
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    analysis = page_text(client.get(reverse("experiment_analysis", args=[experiment.slug])))
    for record in records:
        mean, ends = record["text"].removesuffix("]").split(" [")
        assert mean in results
        same = sum(other["text"] == record["text"] for other in records)
        assert results.count(f"{ends}</div></td>") == same * (1 + has_figure)  # The table, and the figure's values.
        assert mean in analysis
        assert ends in analysis
    mean, interval = max(records, key=lambda record: record["mean"])["text"].removesuffix("]").split(" [")
    Run.objects.filter(experiment=experiment).update(status="done")
    for listed in (page_text(client.get(reverse("experiment_list"))), page_text(client.get(reverse("home")))):
        assert mean in listed
        assert interval in listed


def test_matrix_compare_and_exports_have_the_means_of_the_leaderboard(study, client, tmp_path):
    """Each item has equally many answers, so the mean over items is the mean over answers."""
    experiment = study.experiment
    expected = {record["condition"]: pytest.approx(record["mean"]) for record in study.records}
    client.force_login(experiment.owner)
    address = reverse("experiment_matrix", args=[experiment.slug])
    cells = list(
        csv.DictReader(io.StringIO(client.get(f"{address}?table=matrix&format=csv").content.decode("utf-8-sig")))
    )
    assert {name: np.mean([float(row[f"mean {name}"]) for row in cells]) for name in expected} == expected
    a, b = experiment.conditions.order_by("pk").filter(stage="generate").values_list("pk", flat=True)
    sides = f"?a={experiment.slug}:{a}&b={experiment.slug}:{b}"
    side_a, side_b = client.get(reverse("compare") + sides).context["paired"].sides
    assert {"a": side_a.mean, "b": side_b.mean} == expected
    rows = list(csv.DictReader(io.StringIO(b"".join(export_chunks(experiment, "answers", "csv")).decode())))
    (column,) = [name for name in rows[0] if name.startswith("score_")]
    assert column == make_unique_names([f"score_{study.measure.key}"])[0]
    by_model = {name: np.mean([float(row[column]) for row in rows if row["model"] == name]) for name in expected}
    assert by_model == expected
    call_command("export", experiment.slug, "--table", "answers", "--format", "parquet", "--out", tmp_path / "answers")
    parquet = pq.read_table(tmp_path / "answers").to_pylist()
    assert {name: np.mean([row[column] for row in parquet if row["model"] == name]) for name in expected} == expected


def test_the_waves_have_the_means_of_the_results_of_each_wave(study):
    experiment, measure = study.experiment, study.measure
    first, runs = experiment.waves.get(), factories.make_runs(experiment, wave=1, status="done")
    for run in runs:
        rated = {"rating": 6} if measure.is_rating else {}
        factories.plan_trials(run, answer=lambda *_, rated=rated: {"answer": "again", **rated})
    if not measure.is_rating:
        trials = Trial.objects.filter(run__in=runs)
        gradings = [Grading(trial=trial, condition_id=measure.grader, score=1.0, parse_ok=True) for trial in trials]
        Grading.objects.bulk_create(gradings)
    second = runs[0].wave
    lines = {line.condition: line for line in compare_scores(experiment, first, second) if line.condition}
    assert len(lines) == 2
    for wave, name in ((first, "mean_a"), (second, "mean_b")):
        for line in load_frames(experiment, wave).lines:
            assert getattr(lines[line.condition], name) == pytest.approx(line.score.mean)
    assert all(line.measure.is_share == study.is_share for line in lines.values())


def load_item_means(experiment, measure):
    """Return the mean of each item under both conditions, from the rows."""
    rows = Trial.objects.filter(run__experiment=experiment).order_by("run_id", "item_id")
    values = {}
    for trial in rows.select_related("run__condition__model"):
        score = trial.rating if measure.is_rating else trial.gradings.get(condition_id=measure.grade_condition).score
        values.setdefault((trial.run.condition.model.name, trial.item_id), []).append(score)
    columns = [[np.mean(scores) for (name, _), scores in sorted(values.items()) if name == model] for model in "ab"]
    return [np.array(column) for column in columns]


def test_the_means_of_a_difference_count_each_common_item_once(client):
    experiment, draw = make_study(samples=3), np.random.default_rng(5)

    def score(trial):
        place, is_repeated = trial.item.position, trial.sample_idx > 0
        has_none = not is_better(trial) and (place == 7 or (place < 5 and is_repeated))
        return None if has_none else float(draw.random() < 0.6)

    make_gradings(experiment, "exact_match", score, kind="rule")
    (measure,) = list_measures(experiment)
    rows = Grading.objects.filter(score__isnull=False).values_list(
        "trial__run__condition__model__name", "trial__item__position", "score"
    )
    by_item = {}
    for model, position, score in rows:
        by_item.setdefault((model, position), []).append(score)
    common = [position for position in range(ITEMS) if ("a", position) in by_item]
    means = [np.mean([np.mean(by_item[model, position]) for position in common]) for model in "ab"]
    assert len(common) == ITEMS - 1
    (row,) = build_analysis(experiment)["differences"].rows
    assert (row["mean_a"], row["mean_b"], row["difference"]) == pytest.approx((*means, means[1] - means[0]))
    client.force_login(experiment.owner)
    keys = dict(experiment.conditions.filter(stage="generate").values_list("model__name", "pk"))
    address = f"{reverse('compare')}?a={experiment.slug}:{keys['a']}&b={experiment.slug}:{keys['b']}"
    assert [side.mean for side in client.get(address).context["paired"].sides] == pytest.approx(means)
    baseline = compute_leaderboard(BoardQuery(experiment, baseline=keys["a"])).rows[-1].baseline[measure.key]
    assert (baseline.mean_baseline, baseline.mean) == pytest.approx(means)
