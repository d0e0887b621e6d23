import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.models import GradeCondition
from runs_app.scorers.scorers import (
    SCORERS,
    Score,
    ScoredAnswer,
    ScoredItem,
    ScorerError,
    find_parameter_problems,
    format_scorer,
    read_scorer,
    register_scorer,
)
from runs_app.scorers.scoring_rules import list_scorer_choices
from tests.factories.recordings import read_json_lines

PARAMETERS = {"json_field": {"field": "city"}, "regex": {"pattern": r"=> (\w+)"}}


def score_text(name, text, target="", choices=(), **parameters):
    return SCORERS[name].score(ScoredAnswer(text), ScoredItem(target, choices), parameters or PARAMETERS.get(name, {}))


@pytest.mark.parametrize(
    ("name", "text", "target", "value"),
    [
        ("exact_match", "paris", "Paris", 1),
        ("exact_match", "I think.\nANSWER: Paris.", " Paris ", 1),
        ("exact_match", "It is Paris", "Paris", 0),
        ("exact_match", "", "Paris", 0),
        ("numeric", "1 + 1 = 2", "2.0", 1),
        ("numeric", "ANSWER: $1,000\nThat took 3 steps", "1000", 1),
        ("numeric", "17", "she has 18\n#### 18", 0),
        ("numeric", "2/4", "0.5", 1),
        ("numeric", "ANSWER: 3,5", "3.5", 1),
        ("numeric", "4,5", "3,5", 0),
        ("set_match", "ANSWER: b, a", "a; b", 1),
        ("set_match", '["B", "a"]', "a\nb", 1),
        ("set_match", "a", "a, b", 0),
        ("set_match", "a, b, c", "a, b", 0),
        ("json_field", '{"city": "paris"}', "Paris", 1),
        ("json_field", 'So:\n```json\n{"city": 3.0}\n```', "3", 1),
        ("json_field", '{"city": "Rome"}', "Paris", 0),
        ("regex", "a => b, c => d", "d", 1),
        ("regex", "a => b", "c", 0),
        ("regex", "<think>=> x</think>=> y", "x", 0),
    ],
)
def test_answers_are_right_or_wrong(name, text, target, value):
    assert score_text(name, text, target).value == value


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [("(C) it is", "C", 1), ("B", "green", 1), ("B", "(A)", 0), ("The answer is A", "red", 1)],
)
def test_choices_are_compared_by_letter(text, target, value):
    assert score_text("multiple_choice", text, target, ("red", "green", "blue")).value == value


@pytest.mark.parametrize(
    ("name", "text", "target", "code"),
    [
        ("exact_match", "x", " ", "empty_target"),
        ("multiple_choice", "A", "", "empty_target"),
        ("multiple_choice", "A", "purple", "target_not_letter"),
        ("multiple_choice", "who knows", "A", "no_letter_found"),
        ("numeric", "1", "", "empty_target"),
        ("numeric", "1", "many", "target_not_numeric"),
        ("numeric", "many", "1", "no_number_found"),
        ("numeric", "17\nANSWER: none", "17", "no_number_found"),
        ("set_match", "a", "", "empty_target"),
        ("json_field", "a", "", "empty_target"),
        ("json_field", "a", "b", "no_json_object"),
        ("json_field", '{"town": 1}', "b", "no_such_field"),
        ("regex", "=> a", "", "empty_target"),
        ("regex", "a", "a", "no_match"),
        ("rating", "a", "", "no_rating_found"),
    ],
)
def test_an_unscorable_answer_has_an_error_code_and_no_value(name, text, target, code):
    score = score_text(name, text, target, ("red", "green"))
    assert (score.value, score.parse_ok, score.parse_error) == (None, False, code)


def test_a_rating_is_its_own_score():
    assert SCORERS["rating"].score(ScoredAnswer("six", rating=6), ScoredItem(), {}) == Score(6.0, "6")


def test_a_missing_rating_keeps_its_error_code():
    score = SCORERS["rating"].score(ScoredAnswer("9", rating_error="out_of_scale"), ScoredItem(), {})
    assert score.parse_error == "out_of_scale"


def test_a_tolerance_allows_a_difference():
    assert score_text("numeric", "3.14", "3.14159", tolerance="0.01").value == 1
    assert score_text("numeric", "3.14", "3.14159", tolerance="0.001").value == 0


def test_a_pattern_without_a_group_needs_no_target():
    assert score_text("regex", "it is sunny", pattern="sun+y").value == 1
    assert score_text("regex", "it is grey", pattern="sun+y").value == 0


def test_a_path_reaches_into_nested_objects():
    assert score_text("json_field", '{"a": {"b": true}}', "true", field="a.b").value == 1


def test_a_pattern_with_endless_backtracking_times_out():
    started = time.process_time()
    score = score_text("regex", "a" * 50_000 + "!", "x", pattern=r"(a+)+$")
    assert score.parse_error == "pattern_too_slow"
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("guess", {}, "There is no scorer guess; available scorers: rating, exact_match"),
        ("regex", {}, "needs a pattern: write regex:PATTERN"),
        ("regex", {"pattern": "("}, "not a valid regular expression"),
        ("regex", {"pattern": "a" * 501}, "longer than 500"),
        ("regex", {"pattern": "((((a{99}){99}){99}){99})"}, "multiply to more than 1000"),
        ("exact_match", {"pattern": "x"}, "takes no parameter"),
        ("regex", {"field": "x", "pattern": "y"}, "has no parameter 'field'; its parameter is pattern"),
        (
            "numeric",
            {"tolerance": "-1"},
            "The tolerance of the scorer numeric must be a number from 0 to 1,000,000,000,000",
        ),
        ("numeric", {"tolerance": "nan"}, "must be a number from 0 to 1,000,000,000,000, not 'nan'"),
        ("numeric", {"tolerance": "1e-3"}, "must be a number"),
        ("numeric", {"tolerance": ""}, "must be a number"),
        ("json_field", {"field": "x" * 501}, "a text of 1 to 500 characters"),
    ],
)
def test_invalid_parameters_are_refused(name, parameters, problem):
    assert problem in " ".join(find_parameter_problems(name, parameters))


def test_every_scorer_accepts_its_required_parameters():
    assert [find_parameter_problems(name, PARAMETERS.get(name, {})) for name in SCORERS] == [[]] * len(SCORERS)


def test_a_duplicate_scorer_name_is_refused():
    with pytest.raises(ValueError, match="already registered"):
        register_scorer("rating", "Again", "again")(lambda answer, item, parameters: Score(1.0))


@pytest.mark.parametrize("wrong", [(None, "x", None), (1.0, "x", "no_number_found"), (None, None, ""), (float("nan"),)])
def test_a_score_has_either_a_value_or_an_error(wrong):
    with pytest.raises(ValueError, match="score"):
        Score(*wrong)


@given(
    st.sampled_from(sorted(SCORERS)),
    st.text() | st.text(alphabet='ABC()ANSWER: 0123,./\n{}[]"'),
    st.text(max_size=6),
    st.lists(st.text(max_size=4), max_size=4).map(tuple),
    st.none() | st.integers(1, 7),
)
def test_every_scorer_gives_a_score_for_any_answer_and_item(name, text, target, choices, rating):
    answer = ScoredAnswer(text, rating, None if rating else "no_rating_found")
    score = SCORERS[name].score(answer, ScoredItem(target, choices), PARAMETERS.get(name, {}))
    assert score.parse_ok == (score.value is not None) == (score.parse_error is None)


@pytest.mark.parametrize(("model", "right"), [("6b_finetuning", 286), ("6b_verification", 515)])
def test_recorded_word_problems_get_their_published_scores(model, right):
    problems, solutions = read_json_lines("gsm8k-test.jsonl"), read_json_lines("gsm8k-model-solutions.jsonl")
    assert len(problems) == len(solutions) == 1319
    values = []
    for problem, solution in zip(problems, solutions, strict=True):
        assert problem["question"] == solution["question"]
        target = problem["answer"].rpartition("####")[2].strip()
        values.append(score_text("numeric", solution[model]["solution"], target).value)
        assert values[-1] == solution[model]["is_correct"]
    assert sum(values) == right


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("exact_match", ("exact_match", {})),
        ("numeric", ("numeric", {})),
        ("numeric:0.01", ("numeric", {"tolerance": "0.01"})),
        ("regex:ANSWER: (\\w+) ", ("regex", {"pattern": "ANSWER: (\\w+) "})),
        ("json_field:result.city", ("json_field", {"field": "result.city"})),
        ({"name": "numeric", "tolerance": 0.00001}, ("numeric", {"tolerance": "0.00001"})),
        ({"name": "regex", "pattern": "a:b"}, ("regex", {"pattern": "a:b"})),
    ],
)
def test_a_scorer_parameter_follows_a_colon_or_is_in_a_mapping(written, read):
    assert read_scorer(written) == read
    assert read_scorer(format_scorer(*read)) == read


@pytest.mark.parametrize("written", ["regex", "regex:", "regex:(", "exact_match:x", "guess:x", "", {"pattern": "x"}])
def test_an_unknown_scorer_or_parameter_is_refused(written):
    with pytest.raises(ScorerError):
        read_scorer(written)


MOVIE = ScoredItem("(C)", ("(A)", "(B)", "(C)"), "movies")


def test_the_final_answer_of_a_parametric_task_is_extracted_and_normalised():
    score = SCORERS["final_answer"].score(
        ScoredAnswer("Both are war films.\nFinal Answer: (C) Hacksaw Ridge"), MOVIE, {}
    )
    assert (score.value, score.raw, score.parse_ok) == (1.0, "(C)", True)
    assert score.detail == {
        "extracted": "(C)",
        "normalised": "(C) Hacksaw Ridge",
        "valid": True,
        "correct": True,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("text", "extracted", "valid"),
    [("Final Answer: (A)", "(A)", True), ("Final Answer: (D)", "(D)", False), ("I do not know.", None, False)],
)
def test_a_wrong_or_missing_final_answer_records_whether_it_was_valid(text, extracted, valid):
    score = SCORERS["final_answer"].score(ScoredAnswer(text), MOVIE, {})
    assert (score.value, score.raw) == (0.0, extracted)
    assert (score.detail["valid"], score.detail["correct"]) == (valid, False)


def test_a_final_answer_in_a_thought_is_not_read():
    text = "<think>Final Answer: (C)</think>Final Answer: (B)"
    assert SCORERS["final_answer"].score(ScoredAnswer(text), MOVIE, {}).raw == "(B)"


def test_a_truncated_final_answer_has_no_score_even_if_it_is_correct():
    score = SCORERS["final_answer"].score(ScoredAnswer("Final Answer: (C)", truncated=True), MOVIE, {})
    assert (score.value, score.parse_error) == (None, "truncated")
    assert (score.detail["correct"], score.detail["truncated"]) == (True, True)


@pytest.mark.parametrize(("tokens", "value"), [(2000, 1.0), (2001, None), (None, 1.0)])
def test_a_context_limit_counts_longer_answers_as_truncated(tokens, value):
    answer = ScoredAnswer("Final Answer: (C)", output_tokens=tokens)
    assert SCORERS["final_answer"].score(answer, MOVIE, {"limit": "2000"}).value == value


def test_a_non_parametric_item_has_no_final_answer():
    for item in (ScoredItem("(C)"), ScoredItem("(C)", task="cooking")):
        assert (
            SCORERS["final_answer"].score(ScoredAnswer("Final Answer: (C)"), item, {}).parse_error
            == "no_parametric_task"
        )


@pytest.mark.parametrize("limit", ["0", "-1", "2k", "1.5", "1000000000"])
def test_a_limit_is_a_whole_number_of_tokens(limit):
    with pytest.raises(
        ScorerError, match="The limit of the scorer final_answer must be a whole number from 1 to 999,999,999"
    ):
        read_scorer(f"final_answer:{limit}")


def test_the_form_label_of_a_scorer_begins_with_its_name_in_results():
    choices = dict(list_scorer_choices())
    assert choices["numeric"] == "Number within tolerance: the last number is the target's"
    assert all(label.startswith(f"{GradeCondition(scorer=name).label}: ") for name, label in choices.items())
