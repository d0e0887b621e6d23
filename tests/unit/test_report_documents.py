"""The parts of a report that need no database: wording, labels and page layout of tables and figures."""

import pytest

from grading_app.publish.report import files
from grading_app.publish.report.document import (
    Document,
    FigureBlock,
    Paragraph,
    ReportSection,
    count_noun,
    format_moment,
    format_times,
    join_words,
    make_table_block,
)
from grading_app.publish.report.sections.appendix import describe_stopping_rule
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Experiment

TABLE = ResultTable("t", "T", [ResultColumn("a", "A")], [{"a": "b"}])


def make_figure(name, size=(560, 200)):
    return FigureBlock(name, name, "", "", "<svg></svg>", size, TABLE.content())


def make_document(*sections):
    return Document("study", "Study", "2026-03-01T14:05:09+00:00", "", "Evalsite", list(sections))


def test_words_with_commas_are_joined_by_semicolons():
    assert join_words(["a", "b", "c"]) == "a, b and c"
    assert join_words(["judge, rubric@1", "rule"]) == "judge, rubric@1; rule"
    assert join_words(["large (x, y)", "small (x, z)"]) == "large (x, y) and small (x, z)"


def test_counts_and_times_agree_with_their_nouns():
    assert (count_noun(1, "launch", "launches"), count_noun(2, "launch", "launches")) == ("1 launch", "2 launches")
    assert (format_times(1), format_times(3)) == ("once", "3 times")
    assert format_moment("2026-03-01T15:05:09+01:00") == "2026-03-01 14:05 UTC"


def test_tables_and_figures_are_numbered_through_all_sections():
    text = Paragraph([])
    document = make_document(
        ReportSection("a", "A", [make_table_block(TABLE), text, make_figure("one")]),
        ReportSection("b", "B", [make_figure("two"), make_table_block(TABLE)]),
    )
    labels = [[label for label, _ in labelled] for _, labelled in document.label_sections()]
    assert labels == [["Table 1", "", "Figure 1"], ["Figure 2", "Table 2"]]


@pytest.mark.parametrize(
    ("size", "share"), [((560, 200), 560 / 640), ((640, 200), 1), ((560, 1400), files.TALLEST * 560 / 1400)]
)
def test_a_figure_is_scaled_to_the_page(size, share):
    scale = files._prepare_pdf_block(make_figure("one", size))["scale"]
    assert scale == pytest.approx(share)
    assert scale * size[1] / size[0] <= files.TALLEST + 1e-9


def test_a_tall_figure_does_not_run_over_the_end_of_its_page():
    """A page of A4 has 255 mm between its margins, the text is 170 mm wide, and a caption needs some lines."""
    assert files.TALLEST * 170 < 255 - 35


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({}, ""),
        (
            {"by": "point", "scorer": "exact_match", "round": 16, "max": 1200, "targetci": 0.18},
            "Each condition was asked the cases of each point of the parametric space in rounds of 16, until the 95 % "
            "interval of the accuracy had a half-width of 18 percentage points, with at most 1\u202f200 cases.",
        ),
        (
            {"by": ["length", "depth"], "scorer": "rating", "round": 8, "max": 64, "targetci": 0.5, "confidence": 0.9,
             "abortht": 0.5, "tasks": {"b": {}, "a": {}}},
            "Each condition was asked the cases of each combination of length and depth in rounds of 8, until the 90 % "
            "interval of the mean rating had a half-width of 0.5, with at most 64 cases. A combination of length and "
            "depth was given up if more than 50 % of its answers were truncated. Other limits applied to a and b.",
        ),
    ],
)  # fmt: skip
def test_the_stopping_rule_is_a_sentence(rule, text):
    assert describe_stopping_rule(Experiment(adaptive=rule)) == text
