"""The numbers of a study card: independent of the order of rows, with exact costs, and every change is detected."""

import json
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from grading_app.publish.export.study_card import Counts, StudyCard, find_differences

FACTS = {
    "snapshot": {"label": "first", "reason": "to *see* | it", "by": "owner", "at": "2026-03-01T12:00:00+00:00"},
    "experiment": "pilot", "title": "A <b>title</b>", "description": "", "samples": 2,
    "dataset": {"name": "questions@1", "title": "Questions", "source": "", "licence": "CC-BY-4.0", "hash": "ab" * 32},
    "conditions": [], "manifests": [], "agreement": "/experiments/pilot/agreement/", "packages": {"python": "3.11"},
    "evalsite": {"version": "0.1.0+0123456789", "commit": ""}, "results": {"scores": [], "norms": []},
}  # fmt: skip
trials = st.lists(
    st.fixed_dictionaries(
        {
            "condition_id": st.sampled_from(["a--1", "b--2"]),
            "wave": st.integers(0, 1),
            "wave_label": st.sampled_from(["", "may"]),
            "status": st.sampled_from(["done", "failed", "pending"]),
            "answer": st.sampled_from(["", "yes"]),
            "truncated": st.booleans(),
            "error_class": st.sampled_from(["", "server"]),
            "dimension": st.sampled_from([None, "valence"]),
            "rating": st.sampled_from([None, 4]),
            "parse_error": st.sampled_from([None, "no_number"]),
            "completed_at": st.sampled_from([None, "2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z"]),
        }
    ),
    max_size=20,
)


def count_rows(rows, table="trials"):
    counts = Counts()
    counts.touch(table)
    for row in rows:
        counts.take(table, json.dumps(row).encode())
    return counts.content


@given(trials, st.randoms())
def test_numbers_do_not_depend_on_the_order_of_rows_and_count_each_row_once(rows, random):
    shuffled = random.sample(rows, len(rows))
    content = count_rows(rows)
    assert count_rows(shuffled) == content
    by_status = [
        n
        for waves in content.get("trials", {}).values()
        for result in waves.values()
        for kind, n in result.items()
        if kind in ("done", "failed", "pending")
    ]
    assert sum(by_status) == content["rows"]["trials"] == len(rows)
    assert StudyCard(FACTS, content).to_markdown() == StudyCard(FACTS, count_rows(shuffled)).to_markdown()


def test_costs_are_summed_exactly():
    rows = [{"stage": "judge", "model": "m", "attempts": 1, "unpriced": 0, "cost_usd": 0.1}] * 3
    result = count_rows(rows, "ledger")["money"]["judge"]["m"]
    assert (result["attempts"], Decimal(result["paid_usd"])) == (3, Decimal("0.3"))


def test_a_difference_is_reported_with_both_numbers():
    assert find_differences({"a": {"b": 3, "c": 1}}, {"a": {"b": 2, "c": 1}, "d": 5}) == [
        "a / b: the card says 3, the tables 2",
        "d: the card says None, the tables 5",
    ]


def test_a_result_has_an_interval_with_its_method_or_a_reason():
    line = {"measure": "exact_match", "condition": "small", "n": 10, "items": 10, "unread": 0, "mean": 1.0, "se": 0.0}
    with_interval = {**line, "low": 0.7225, "high": 1.0, "method": "Wilson", "reason": ""}
    without = {**line, "low": None, "high": None, "method": "", "reason": "an interval needs at least two items"}
    results = {"scores": [with_interval, without], "norms": []}
    card = StudyCard({**FACTS, "results": results}, count_rows([])).to_markdown()
    assert "| exact_match | small | 10 | 10 | 0 | 1 | 0 | 0.7225 to 1 | Wilson |" in card
    assert "| 1 | 0 | - | an interval needs at least two items |" in card


def test_a_rating_study_lists_its_ratings_and_no_grades():
    rated = {"condition_id": "a--1", "wave": 0, "wave_label": "", "status": "done", "answer": "4", "truncated": False}
    rows = [
        {**rated, "dimension": "valence", "rating": 4, "parse_error": None, "error_class": None, "completed_at": None},
        {**rated, "dimension": "valence", "rating": None, "parse_error": "no_number", "error_class": None,
         "completed_at": None},
    ]  # fmt: skip
    card = StudyCard(FACTS, count_rows(rows)).to_markdown()
    assert "| a--1 | valence | ratings | 1 |" in card
    assert "| a--1 | valence | no rating: no_number | 1 |" in card
    assert "## Grades" not in card
    assert "## Grades" in StudyCard(FACTS, count_rows([])).to_markdown()


def test_ratings_by_people_are_counted_without_excluded_raters():
    row = {"queue": "feelings", "rated_on": "arousal", "kind": "item", "rating": 3.0, "excluded": False}
    card = StudyCard(
        FACTS, count_rows([row, row, {**row, "excluded": True}, {**row, "rating": None}], "ratings")
    ).to_markdown()
    assert "| feelings | arousal | item | 2 |" in card


def test_the_card_names_the_version_and_the_commit():
    assert "| evalsite | 0.1.0+0123456789 |" in StudyCard(FACTS, count_rows([])).to_markdown()
    software = {"version": "0.1.0+0123456789", "commit": "c0ffee"}
    assert "| commit of evalsite | c0ffee |" in StudyCard({**FACTS, "evalsite": software}, count_rows([])).to_markdown()


def test_markup_in_texts_of_people_is_escaped():
    card = StudyCard(FACTS, count_rows([])).to_markdown()
    assert "A \\<b\\>title\\</b\\>" in card
    assert "to \\*see\\* | it" in card
    assert "| source | not said |" in card
