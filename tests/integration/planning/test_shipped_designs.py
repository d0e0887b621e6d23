"""The shipped prompts and samplers for parametric tasks, and the requests they render."""

import io

import pytest
from django.core.management import call_command

from datasets_app.generators.registry import load_generators
from datasets_app.parametric.items import generate_point
from datasets_app.parametric.prompt_parts import make_prompt_parts
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from runs_app.llm.prompts import build_variables, render, validate
from runs_app.models import Prompt, Sampler
from runs_app.planning import shipped_designs
from runs_app.planning.shipped_designs import PROMPTS, create_shipped_designs

ROLES = {
    "zeroshot": "su",
    "zeroshot-nosys": "u",
    "zerocot-nosys": "u",
    "multishot": "suauauau",
    "multishot-nosys": "uauauau",
    "multishot-cot": "suauauau",
    "unified-cot": "u",
}


def generate_item(task):
    (point,) = resolve_space(read_space(f"name: n\ntasks: [{{name: {task}, params: {{count: 2}}}}]")).points
    item = next(generate_point(point))
    return item, item.metadata() | make_prompt_parts(point, seed=42)


@pytest.mark.parametrize("name", PROMPTS)
def test_a_shipped_prompt_is_valid_and_renders_for_every_task(name):
    assert validate(PROMPTS[name]) == []
    for task in load_generators():
        item, metadata = generate_item(task)
        variables = build_variables(key=item.key, input=item.case.input, metadata=metadata)
        messages = render(PROMPTS[name], variables)
        assert "".join(message["role"][0] for message in messages) == ROLES[name]
        assert messages[-1]["content"].endswith(item.case.input)
        texts = "\n".join(message["content"] for message in messages)
        instruction = (
            metadata["instruction_stepwise"] if name == "zerocot-nosys" else load_generators()[task].instructions.task
        )
        assert instruction in texts
        has_examples = all(metadata[f"example_{number}_input"] in texts for number in (1, 2, 3))
        assert has_examples == (("shot" in name and not name.startswith("zero")) or name == "unified-cot")
        assert (metadata["example_3_reasoning"] in texts) == name.endswith("-cot")


@pytest.mark.django_db
def test_the_command_creates_missing_designs_as_approved_and_keeps_existing_ones():
    Prompt.objects.create(name="zeroshot", messages=[{"role": "user", "content": "Mine: {{input}}"}], status="archived")
    out = io.StringIO()
    call_command("prompt", "shipped", stdout=out)
    assert "zeroshot-nosys@1" in out.getvalue()
    assert Prompt.objects.get(name="zeroshot").status == "archived"
    assert set(Prompt.objects.filter(status="approved").values_list("name", flat=True)) == set(ROLES) - {"zeroshot"}
    limits = dict(Sampler.objects.filter(status="approved", temperature=0).values_list("name", "max_tokens"))
    assert limits == {"greedy-2k": 2048, "greedy-4k": 4096, "greedy-8k": 8192, "greedy-max": None}
    assert Prompt.objects.get(name="multishot").history.get().reason == shipped_designs.REASON
    assert create_shipped_designs() == []
    call_command("prompt", "shipped", stdout=(second_output := io.StringIO()))
    assert "nothing is missing" in second_output.getvalue()
