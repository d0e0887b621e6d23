import pytest

from runs_app.experiment_files import spec_reader
from runs_app.experiment_files.spec_reader import SpecError, read_yaml

GOOD = """
experiment: pilot
dataset: questions@1
models: [sim-large]
prompts: [{name: plain, user: "{{input}}"}]
"""


def list_problems(text):
    with pytest.raises(SpecError) as caught:
        read_yaml(text)
    return caught.value.problems


def test_a_minimal_file_is_valid():
    spec = read_yaml(GOOD)
    assert (spec.experiment, spec.samplers, spec.samples) == ("pilot", ["provider-default"], None)
    assert spec.prompts[0].turns == [{"role": "user", "content": "{{input}}"}]


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("sampels: 3", "sampels: unknown key; did you mean samples?"),
        ("name: pilot", "name: unknown key"),  # A valid key in many other places.
        ("max_usd: 3", "max_usd: unknown key; it belongs under budget"),
        ("scorers: [exact_match]", "scorers: unknown key; it belongs under grade"),
        ("budget: {title: x}", "budget.title: unknown key"),
        ('"samples ": 3', "samples : unknown key; it differs from samples in white space"),
        ("Samples: 3", "Samples: unknown key; it differs from samples in upper and lower case"),
        ("budget: {max_use: 3}", "budget.max_use: unknown key; did you mean max_usd?"),
        ("samples: '3'", "samples: input should be a valid integer"),
        ("samples: true", "samples: input should be a valid integer"),
        ("samplers: [{name: greedy, temprature: 0}]", "samplers[0].temprature: unknown key; did you mean temperature?"),
        ("samplers: [plain, {name: s, temperature: .nan}]", "samplers[1].temperature: must be between 0 and 2"),
        ("samplers: []", "samplers: list should have at least 1 item after validation, not 0"),
        (
            "dimensions: [{name: v, instructions: x, labels: {1: No}}]",
            "dimensions[0].labels[1]: input should be a valid string",
        ),
        ("budget: {max_usd: -1}", "budget.max_usd: must be between 0 and 10,000,000 US dollars"),
        ("budget: {max_usd: 0.00001}", "budget.max_usd: decimal input should have no more than 4 decimal places"),
        (
            "grade: {graders: [{name: j, model: small, rubric: {name: r, user: x, kind: stars}}]}",
            "grade.graders[0].rubric.kind: input should be 'score', 'criteria', 'label' or 'pairwise'",
        ),
        ('title: "a\\0b"', "title: contains a NUL character, which the database cannot store"),
    ],
)
def test_an_unknown_key_is_reported_with_its_path(added, problem):
    assert list_problems(GOOD + added) == [problem]


def test_all_problems_are_reported_together():
    assert list_problems("experiment: Pilot 1\nprompts: [{name: plain}]\n") == [
        "experiment: string should match pattern '^[a-z0-9][a-z0-9_-]*$'",
        "dataset: field required",
        "models: field required",
        "prompts[0]: use either user (and system) or messages",
    ]


def test_a_name_with_a_line_break_is_refused():
    assert list_problems(GOOD.replace("pilot", '"pilot\\n"'))[0].startswith("experiment: string should match")


@pytest.mark.parametrize("text", ["", "[]", "just text", "3"])
def test_a_file_that_is_not_a_mapping_is_refused(text):
    assert list_problems(text) == ["an experiment file must be a mapping that starts with experiment: NAME"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "this is not YAML"),
        ("experiment: x\nexperiment: y", "a key occurs twice in the mapping that starts in line 1"),
        ("a: &x [1]\nb: *x", "aliases (*name) are not supported"),
        ("[" * 100_000, "this cannot be read: RecursionError"),
        ("a: " + "9" * 5000, "this cannot be read: ValueError"),
        ("!!python/object/apply:os.system ['true']", "this is not YAML"),
    ],
)
def test_hostile_yaml_is_refused(text, message):
    assert message in list_problems(text)[0]


def test_line_breaks_around_a_text_are_not_part_of_the_prompt():
    spec = read_yaml(
        GOOD.replace('[{name: plain, user: "{{input}}"}]', "\n- name: plain\n  user: |\n    {{input}}\n    A?")
    )
    assert spec.prompts[0].turns == [{"role": "user", "content": "{{input}}\nA?"}]


def test_a_prompt_can_list_its_turns():
    turns = "[{role: user, content: a}, {role: assistant, content: b}, {role: user, content: c}]"
    spec = read_yaml(GOOD.replace('user: "{{input}}"', f"messages: {turns}"))
    assert [turn["role"] for turn in spec.prompts[0].turns] == ["user", "assistant", "user"]


def test_an_amount_is_stored_exactly_as_written():
    assert str(read_yaml(GOOD + "budget: {max_usd: 0.1}").budget.max_usd) == "0.1"


@pytest.mark.slow
def test_a_file_beyond_the_limits_is_refused_quickly(monkeypatch):
    """600 kB of keys took half a minute, mostly to find a similar name for each key."""
    compared = []
    monkeypatch.setattr(spec_reader, "did_you_mean", lambda *key, **how: compared.append(key) or "")
    many = "\n".join(f"k{number}: v" for number in range(60_000))
    with pytest.raises(SpecError, match=r"more than 20,000 values are not read; write a file this large as JSON"):
        read_yaml(many)
    with pytest.raises(SpecError) as caught:
        read_yaml("{" + ", ".join(f'"k{number}": 1' for number in range(60_000)) + "}")
    assert len(caught.value.problems) == spec_reader.MAX_PROBLEMS + 1
    assert caught.value.problems[-1].endswith("more problems")
    assert len(compared) <= spec_reader.MAX_PROBLEMS
    with pytest.raises(SpecError, match="the file has 1,000,001 characters; at most 1,000,000 are read"):
        read_yaml("x" * 1_000_001)
