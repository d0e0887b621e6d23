"""Effects of the factors of a design, and differences between conditions within item categories."""

import json

import pytest
from django.core.management import call_command
from django.http import QueryDict
from scipy import stats

from grading_app.results import plot_style
from grading_app.results.analysis.category_differences import build_category_tables
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.descriptives import build_descriptive_tables
from grading_app.results.analysis.factors import build_factor_tables
from grading_app.results.analysis.norms import build_norm_tables
from grading_app.results.figures.analysis import make_figures
from grading_app.results.scope import ScopeForm
from tests import factories
from tests.factories.gradings import make_gradings
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
ALL = (build_descriptive_tables, build_factor_tables, build_category_tables, build_norm_tables)


@shared_rows
def crossed():
    """Return two models x two prompts on 24 items of two categories: `large` is two points higher on even items."""
    items = [
        {"key": f"item-{n}", "category": ("even", "odd")[n % 2], "norms": {"valence": 1 + n % 5}} for n in range(24)
    ]
    experiment = factories.make_experiment(
        "crossed",
        dataset=factories.make_dataset("crossed-items", items),
        models=[factories.make_model("small"), factories.make_model("large")],
        prompts=[factories.make_prompt("short"), factories.make_prompt("long")],
        dimensions=[factories.make_dimension("valence")],
        samples=1,
    )
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        higher = 2 if run.condition.model.name == "large" else 0
        factories.plan_trials(
            run, answer=lambda item, *_, number=number, higher=higher: _rating(item.position, number, higher)
        )
    return experiment


def _rating(position, number, higher):
    rating = 1 + position % 5 + (higher if position % 2 == 0 else 0) - ((position * 7 + number * 5) % 3 == 0)
    rating = max(1, min(7, rating))
    return {"answer": str(rating), "rating": rating}


def build_tables(experiment, *builders, query=""):
    data = load_analysis_data(ScopeForm(QueryDict(query), experiment).get_scope())
    return {table.name: table for build in builders for table in build(data)}


def test_the_mixed_model_stands_beside_the_f_tests_and_says_if_it_converged(crossed):
    tables = build_tables(crossed, build_factor_tables)
    table, others = tables["mixed_model"], {row["term"]: row for row in tables["factors"].rows}
    assert [row["term"] for row in table.rows] == ["Model", "Prompt", "Model × Prompt"]
    for row in table.rows:
        assert (row["f_t2"], row["p_t2"]) == (others[row["term"]]["f"], others[row["term"]]["p"])
        assert (row["df1"], row["df2"]) == (1, 23 * 3)
    assert table.rows[0]["p"] < 0.001
    assert table.sentence == "The fit converged."
    assert table.notes[0].startswith("24 items. Standard deviations: ")


def test_the_factors_of_the_design_are_tested_in_one_model(crossed):
    table = build_tables(crossed, build_factor_tables)["factors"]
    rows = {row["term"]: row for row in table.rows}
    assert set(rows) == {"Model", "Prompt", "Model × Prompt"}
    assert rows["Model"]["df1"] == 1
    assert rows["Model"]["df2"] == 23
    assert rows["Model"]["p_holm"] < 0.05 < rows["Prompt"]["p_holm"]
    assert table.sentence.startswith("After Holm's correction, these terms have an effect: Model (F(1, 23) = ")
    assert table.correction == "Holm over the 3 terms of this table."


def test_a_marginal_mean_is_the_mean_of_the_conditions_with_its_level(crossed):
    tables = build_tables(crossed, build_descriptive_tables, build_factor_tables)
    of_conditions = {row["condition"]: row["mean"] for row in tables["descriptives"].rows}
    large = next(row for row in tables["marginal_means"].rows if row["level"] == "large")
    means = [mean for name, mean in of_conditions.items() if name.startswith("large")]
    assert large["mean"] == pytest.approx(sum(means) / 2)
    assert large["interval"][0] < large["mean"] < large["interval"][1]


def test_differences_are_given_by_category_with_one_correction(crossed):
    baseline = crossed.conditions.get(model__name="small", prompt__name="short")
    tables = build_tables(crossed, build_category_tables, query=f"baseline={baseline.pk}")
    table = tables["category_differences"]
    assert table.title == "Differences from small · short by category"
    assert table.correction == "Holm over the 6 comparisons of this table."
    clear = {(row["category"], row["condition"]) for row in table.rows if row["p_holm"] < 0.05}
    assert clear == {("even", "large · short"), ("even", "large · long")}
    (interaction,) = tables["category_interaction"].rows
    assert interaction["p"] < 0.01
    assert tables["category_interaction"].sentence.startswith("The differences between conditions differ between")


def test_conditions_are_ranked_by_every_measure_of_agreement(crossed):
    tables = build_tables(crossed, build_norm_tables)
    table = tables["norm_leaderboard"]
    errors = [row["mae"] for row in table.rows]
    assert errors == sorted(errors)
    for column in table.columns[1:]:
        values = [row[column.name] for row in table.sort_by(f"-{column.name}").rows]
        assert values == sorted(values, reverse=True), column.name
    of_condition = {row["condition"]: row["r"] for row in tables["norm_agreement"].rows}
    assert {row["condition"]: row["r"] for row in table.rows} == of_condition


def test_the_regression_line_lies_within_its_band_and_matches_the_table(crossed):
    tables = build_tables(crossed, build_norm_tables)
    panels = tables["norm_regression"].data["panels"]
    rows = {row["condition"]: row for row in tables["norm_regression"].rows}
    assert len(panels) == 5
    for panel in panels:
        row = rows[panel["label"]]
        for x, line, low, high in zip(*(panel[n] for n in ("line_x", "line", "band_low", "band_high")), strict=True):
            assert line == pytest.approx(row["ols_a"] + row["ols_b"] * x, abs=1e-3)
            assert low < line < high


@pytest.mark.slow
def test_figures_show_factors_categories_and_regression(crossed):
    figures = {figure.name: figure for figure in make_figures(build_tables(crossed, *ALL))}
    for name in ("marginal-means", "category-differences", "category-map", "norm-regression"):
        figure = figures[f"analysis-{name}"]
        for width in (plot_style.WIDE, plot_style.NARROW):
            picture = plot_style.render_svg(lambda figure=figure, width=width: figure.draw(width)).decode()
            assert picture.startswith("<svg")
            width_pt, height_pt = (float(picture.split(f'{side}="')[1].split("pt")[0]) for side in ("width", "height"))
            assert (width_pt / 0.75, height_pt / 0.75) == pytest.approx(figure.size(width), abs=1)
        assert figure.alt


@pytest.mark.slow
def test_the_command_writes_the_same_tables(crossed, tmp_path):
    out = tmp_path / "table.json"
    call_command("analyse", "crossed", "--table", "factors", "--format", "json", "--out", str(out))
    rows = json.loads(out.read_text())["rows"]
    assert [row["term"] for row in rows] == ["Model", "Prompt", "Model × Prompt"]
    assert rows[0]["f"] == pytest.approx(build_tables(crossed, build_factor_tables)["factors"].rows[0]["f"])


def test_a_design_without_factors_or_categories_has_no_table_of_them():
    experiment = factories.make_experiment(
        "single", dataset=factories.make_dataset("six", 6), dimensions=[factories.make_dimension("valence")], samples=1
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: {"answer": "1", "rating": 1 + item.position})
    assert not {"factors", "marginal_means", "category_differences"} & set(
        build_tables(experiment, build_factor_tables, build_category_tables)
    )


def make_graded_study(*, is_right, samples=2):
    """Return two models x two prompts on 30 items, graded right or wrong by `is_right(trial)`."""
    experiment = factories.make_experiment(
        "graded",
        dataset=factories.make_dataset("graded-items", 30),
        models=[factories.make_model("small"), factories.make_model("large")],
        prompts=[factories.make_prompt("short"), factories.make_prompt("long")],
        samples=samples,
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, _, sample: {"answer": f"{item.position} {sample}"})
    make_gradings(experiment, "exact_match", lambda trial: float(is_right(trial)), kind="rule")
    return experiment


def is_mostly_right_if_large(trial):
    position, large = trial.item.position, trial.run.condition.model.name == "large"
    return (position * 7 + trial.sample_idx * 3 + 5 * (trial.run.condition.prompt.name == "long")) % 10 < 3 + 4 * large


def test_shares_have_odds_ratios_and_likelihood_ratio_tests_beside_the_f_tests():
    experiment = make_graded_study(is_right=is_mostly_right_if_large)
    baseline = experiment.conditions.get(model__name="small", prompt__name="short")
    tables = build_tables(experiment, build_factor_tables, query=f"baseline={baseline.pk}")
    table, others = tables["logistic_mixed_model"], {row["term"]: row for row in tables["factors"].rows}
    rows = {row["term"]: row for row in table.rows}
    assert list(rows) == ["Model", "Prompt", "Model × Prompt"]
    for term, row in rows.items():
        assert row["p"] == pytest.approx(stats.chi2.sf(row["chi2"], row["df"]))
        assert (row["f_t2"], row["p_t2"]) == (others[term]["f"], others[term]["p"])
    assert rows["Model"]["p_holm"] < 0.001 < 0.05 < rows["Prompt"]["p"]
    assert "240 answers to 30 items" in table.notes[0]
    model, prompt = tables["odds_ratios"].rows
    assert (model["level"], model["reference"], model["share"], model["reference_share"]) == (
        "large", "small", pytest.approx(0.7), pytest.approx(0.3),
    )  # fmt: skip
    low, high = model["odds_ratio_ci"]
    assert 1 < low < model["odds_ratio"] < high
    assert prompt["odds_ratio_ci"][0] < 1 < prompt["odds_ratio_ci"][1]
    assert tables["odds_ratios"].sentence.startswith("For one item, the odds of a right answer with large are ")
    other = experiment.conditions.get(model__name="large", prompt__name="short")
    (turned, _) = build_tables(experiment, build_factor_tables, query=f"baseline={other.pk}")["odds_ratios"].rows
    assert (turned["level"], turned["reference"]) == ("small", "large")
    assert turned["odds_ratio"] == pytest.approx(1 / model["odds_ratio"], rel=1e-3)


def test_a_condition_without_a_wrong_answer_has_a_reason_instead_of_numbers():
    tables = build_tables(
        make_graded_study(
            is_right=lambda trial: trial.run.condition.model.name == "large" or is_mostly_right_if_large(trial)
        ),
        build_factor_tables,
    )
    table = tables["logistic_mixed_model"]
    assert "odds_ratios" not in tables
    assert not table.rows
    assert "No fit, because all answers are alike under some conditions: " in table.sentence
    for prompt in ("short", "long"):
        assert f"large · {prompt} (all right)" in table.sentence


def test_ratings_have_no_odds(crossed):
    assert not {"logistic_mixed_model", "odds_ratios"} & set(build_tables(crossed, build_factor_tables))
