"""Parsing of verdicts: a judge's reply in any format gives a score or an error code."""

import json
import math
import random
import re
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.grading.judging.verdicts import Verdict, read_verdict
from runs_app.simulator.judge_behaviour import RequestedVerdict

SCORE = {"kind": "score", "min": 0, "max": 10}
CRITERIA = {
    "kind": "criteria",
    "criteria": [{"name": "correct", "weight": 3}, {"name": "Well put", "weight": 1}, {"name": "brief", "weight": 1}],
}
LABEL = {
    "kind": "label",
    "labels": [{"name": "right", "score": 1}, {"name": 'so "so"', "score": 0.5}, {"name": "wrong"}],
}
PAIRWISE = {"kind": "pairwise"}
REQUESTS = {
    "score": (SCORE, RequestedVerdict("score")),
    "criteria": (CRITERIA, RequestedVerdict("criteria", ("correct", "Well put", "brief"))),
    "label": (LABEL, RequestedVerdict("label", ("right", 'so "so"', "wrong"))),
    "pairwise": (PAIRWISE, RequestedVerdict("pairwise")),
}


@pytest.mark.parametrize(
    ("kind", "replies"), [("score", 8000), ("criteria", 2000), ("label", 2000), ("pairwise", 2000)]
)
def test_replies_in_many_formats_give_a_score_or_the_correct_code(kind, replies):
    rubric, request = REQUESTS[kind]
    dice = random.Random(20261120)
    codes = Counter()
    for _ in range(replies):
        reply, code = request.vary_format((0, 10), dice)
        verdict = read_verdict(reply, rubric)
        assert verdict.error == code, reply
        assert (verdict.score is None and not verdict.winner) == bool(code)
        codes[code] += 1
    assert codes[""] > replies / 4
    assert len(codes) >= 4
    assert min(codes.values()) > 10


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('```json\n{"score": 2}\n```\nOr rather:\n```json\n{"score": 7}\n```', 7),
        ('{"score": 2} ```json\n{"score": 7}\n```', 7),
        ('```json\n{"score": 7}\n```\n```json\n{"total": 2}\n```', 7),
        ('```json\n{"score": true}\n```\n{"score": 7}', None),
        ('{"score": 2} and then {"score": 7}', 7),
        ('{"reasoning": {"score": 2}, "score": 7}', 7),
        ('```json\n{"Score": 7}\n```', 7),
        ('```json\n{"score": 7, "reasoning": "so \\(x\\) and \\sqrt{2}"}\n```', 7),
        ('<think>{"score": 2}</think>{"score": 7}', 7),
    ],
)
def test_the_last_fenced_block_with_a_score_precedes_the_last_object(reply, score):
    assert read_verdict(reply, SCORE).score == score


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('```json\n{"score": 3, "reasoning": "ends with a stray </think> tag but is right"}\n```', 3),
        ('{"score": 0}\nNo wait.\n```json\n{"score": 1, "reasoning": "it opens <think> and"}\n```', 1),
        ('It opens <think> and never closes it.\n```json\n{"score": 3}\n```', 3),
        ('```json\n{"score": 3}\n```\nThe answer has a stray </think> and says {"score": 9}.', 3),
        ('I weighed it.</think>\n```json\n{"score": 3}\n```', 3),
        ('<think>It says {"reasoning": "</think>"}, so {"score": 9}</think>{"score": 3}', 3),
        ('<think>a</think>\n<thinking>{"score": 9}</thinking>\n{"score": 3}', 3),
        ('<think>It says {"reasoning": "</think>"}, so {"score": 9}', None),
        ('<think>{"score": 9}</think> I cannot say.', None),
    ],
)
def test_only_thoughts_at_the_beginning_of_a_reply_are_skipped(reply, score):
    assert read_verdict(reply, SCORE).score == score


TAGS = st.sampled_from(["<think>", "</think>", "<THINKING>", "</thinking>"])
QUOTING = st.lists(st.one_of(TAGS, st.sampled_from([" ", "the answer says", "{", "}", '"', "\\("])), max_size=6).map(
    "".join
)
AROUND = st.sampled_from(["", "I compared both. ", "First {x}.\n", '{"note": 1} ', "<think>hm</think>", "<think>"])


@given(
    AROUND,
    st.lists(st.tuples(QUOTING, st.booleans(), st.sampled_from([1, 7, 99, "high", None])), max_size=3),
    AROUND.filter(lambda text: "think" not in text),
)
def test_a_think_tag_inside_a_json_string_never_changes_score_or_code(before, blocks, after):
    def reply(tag):
        parts = [(tag(quoting), fenced, {} if score is None else {"score": score}) for quoting, fenced, score in blocks]
        objects = [(json.dumps({"reasoning": quoting} | result), fenced) for quoting, fenced, result in parts]
        return before + "".join(f"```json\n{text}\n```\n" if fenced else f"{text} " for text, fenced in objects) + after

    quoted = read_verdict(reply(str), SCORE)
    plain = read_verdict(reply(lambda text: re.sub("<(/?)think(ing)?>", "tag", text, flags=re.IGNORECASE)), SCORE)
    assert (quoted.score, quoted.error) == (plain.score, plain.error)


def test_latex_in_the_reasoning_is_preserved():
    reply = '```json\n{"score": 1, "reasoning": "It follows that \\( \\alpha \\le 2 \\)."}\n```'
    assert read_verdict(reply, SCORE).reasoning == "It follows that \\( \\alpha \\le 2 \\)."


def test_criteria_give_a_weighted_share():
    reply = json.dumps({"criteria": {"correct": "pass", "well  PUT": False, "brief": "Fail", "more": 1}})
    verdict = read_verdict(reply, CRITERIA)
    assert verdict.score == pytest.approx(3 / 5)
    assert verdict.detail == {"criteria": {"correct": True, "Well put": False, "brief": False}}


def test_a_label_scores_its_value_or_its_position():
    assert read_verdict('{"label": " Right "}', LABEL).score == 1
    assert read_verdict('{"label": "wrong"}', LABEL).score == 2
    assert read_verdict('{"label": "wrong"}', LABEL).detail == {"label": "wrong"}


@given(st.text(max_size=400), st.sampled_from(sorted(REQUESTS)))
def test_no_text_raises_an_exception_and_a_verdict_has_either_a_value_or_a_code(text, kind):
    verdict = read_verdict(text, REQUESTS[kind][0])
    assert bool(verdict.error) != (verdict.score is not None or bool(verdict.winner))


PIECES = st.sampled_from(
    ["```", "```json\n", "\n", '{"score": 3}', '{"score": ', "{", "}", "\\", '"', "NaN", "1", "<think>"]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_combination_of_fragments_raises_an_exception(text):
    verdict = read_verdict(text, SCORE)
    assert verdict.score in (None, 3, 1) or 0 <= verdict.score <= 10


@given(st.floats(min_value=0, max_value=10), st.text(max_size=80))
def test_scores_of_valid_verdicts_are_read_exactly(score, reasoning):
    block = json.dumps({"score": score, "reasoning": reasoning}, ensure_ascii=False)
    verdict = read_verdict(f"I compared both.\n```json\n{block}\n```", SCORE)
    if "```" in reasoning or "<" in reasoning:
        return
    assert verdict.score == score
    stored_reasoning = reasoning.replace("\0", "\ufffd")
    assert verdict.reasoning == stored_reasoning or not stored_reasoning.isprintable()


@given(st.one_of(st.booleans(), st.none(), st.text(max_size=9), st.lists(st.integers(), max_size=2)))
def test_a_non_numeric_score_is_refused(value):
    assert read_verdict(json.dumps({"score": value}), SCORE).error == "score_not_numeric"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_score_is_refused(value):
    assert read_verdict(json.dumps({"score": value}), SCORE).error == "score_not_finite"


@pytest.mark.parametrize(
    "reply",
    ["{" * 50_000, '{"a":' * 20_000, "```" * 20_000, "\\" * 50_000, '{"score": 1' * 5_000, "```" + "a" * 50_000,
     # A backtracking parser would need seconds for a thousand. Judges sometimes return endless blanks.
     "```" + " " * 1_500, "```json" + "\t" * 50_000],
)  # fmt: skip
def test_hostile_replies_are_parsed_quickly(reply):
    started = time.process_time()
    assert read_verdict(reply, SCORE).error == "no_json_object"
    assert time.process_time() - started < 1


def test_a_verdict_has_a_value_or_an_error():
    with pytest.raises(ValueError, match="either a value or an error"):
        Verdict()
    with pytest.raises(ValueError, match="either a value or an error"):
        Verdict(score=1.0, error="no_json_object")
