# mypy: ignore-errors
"""Write the logs of this folder's tests, with inspect_ai 0.3.285 and models that only pretend to call: no network.

    python make_logs.py FOLDER

Run it in an environment of its own that has `inspect_ai` and `pillow`. Facts about the machine are removed. What
inspect_ai itself reads in the logs is written to `readings.json`.
"""

import base64
import io
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai._util import registry
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import (
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelCost,
    ModelInfo,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
    set_model_info,
)
from inspect_ai.model._providers import providers  # noqa: F401
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.scorer import Score, match, mean, model_graded_fact, model_graded_qa, scorer
from inspect_ai.solver import generate, solver, system_message, use_tools
from inspect_ai.tool import tool
from PIL import Image

PRICES = ModelCost(input=2.5, output=10.0, input_cache_write=3.0, input_cache_read=1.25)
SECRET_PATH = re.compile(r"(/[\w.@-]+){2,}")


for provider in ("openai", "anthropic"):  # Replaced by the mock model, so that the logs name real models.
    del registry._registry[f"modelapi:inspect_ai/{provider}"]
    modelapi(name=provider)(MockLLM)


def make_reply(text, tokens, *, reasoning="", model="gpt-4o-2024-11-20", stop="stop", **usage):
    content = [ContentReasoning(reasoning=reasoning), ContentText(text=text)] if reasoning else text
    output = ModelOutput.from_content(model=model, content=content, stop_reason=stop)
    total = tokens[0] + tokens[1] + sum(value for name, value in usage.items() if name.startswith("input"))
    output.usage = ModelUsage(input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=total, **usage)
    return output


def answer(messages, tools, choice, config):
    """Answer by what was asked last. The words of the conversation decide the usage, so calls differ."""
    texts = [message.text for message in messages]
    words = sum(len(text.split()) for text in texts)
    last = messages[-1]
    if last.role == "tool":
        return make_reply(f"The tool says {last.text}. ANSWER: {last.text}", (100 + words, 12))
    if tools and "sum" in last.text:
        numbers = [int(number) for number in re.findall(r"\d+", last.text)]
        call = ModelOutput.for_tool_call("gpt-4o-2024-11-20", "add", {"x": numbers[0], "y": numbers[1]})
        call.usage = ModelUsage(input_tokens=90 + words, output_tokens=20, total_tokens=110 + words)
        return call
    if "fail" in last.text:
        raise RuntimeError("the server closed the connection")
    if "Are you sure?" in last.text:
        return make_reply(
            "Yes. ANSWER: Paris", (40 + words, 8), input_tokens_cache_read=3, input_tokens_cache_write=2,
            reasoning_tokens=5, reasoning="The capital did not move.",
        )  # fmt: skip
    if "long" in last.text:
        return make_reply("It goes on and", (30 + words, 64), stop="max_tokens")
    return make_reply(f"I see {len(messages)} messages. ANSWER: Paris", (20 + words, 10), input_tokens_cache_read=7)


def judge(messages, tools, choice, config):
    grade = "C" if "Paris" in messages[-1].text else "I"
    return make_reply(f"The criterion is clear.\n\nGRADE: {grade}", (250, 9), model="claude-3-5-sonnet-20241022")


def draw_picture(colour, size=(24, 16)):
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def ask_about(*pictures, text="Which colour is this?"):
    parts = [ContentText(text=text), *(ContentImage(image=picture) for picture in pictures)]
    return [ChatMessageUser(content=parts)]


@solver
def ask_again():
    async def solve(state, generate):
        state.messages.append(ChatMessageUser(content="Are you sure?"))
        return await generate(state)

    return solve


@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        return str(x + y)

    return execute


@scorer(metrics=[mean()])
def length():
    async def score(state, target):
        return Score(value=len(state.output.completion), explanation="Characters of the answer.")

    return score


def list_tasks():
    red, green, blue = (draw_picture(colour) for colour in ("red", "green", "blue"))
    pictures = [
        Sample(id="red", input=ask_about(red), target="red", metadata={"category": "warm"}),
        Sample(id="both/two", input=ask_about(green, blue, text="Which colours are these?"), target="green"),
        Sample(id=3, input="What is the capital of France?", target="Paris"),
    ]
    yield Task(
        pictures, solver=[system_message("Look closely."), generate()], scorer=model_graded_qa(), name="pictures",
        config=GenerateConfig(temperature=0.5, max_tokens=64),
    ), {"epochs": 2}  # fmt: skip
    talks = [
        Sample(id="capital", input="What is the capital of France?", target="Paris"),
        Sample(id="long", input="Say something long.", target="Paris"),
        Sample(id="broken", input="Please fail.", target="Paris"),
    ]
    yield Task(
        talks, solver=[system_message("Be brief."), generate(), ask_again()], name="talks",
        scorer=[model_graded_fact(instructions="Reply with GRADE: C or GRADE: I."), match(), length()],
    ), {"fail_on_error": False, "retry_on_error": 1}  # fmt: skip
    sums = [Sample(id=f"sum-{n}", input=f"What is the sum of {n} and {n + 1}?", target=str(2 * n + 1)) for n in (1, 2)]
    yield Task(sums, solver=[use_tools(add()), generate()], scorer=match(), name="tools"), {}
    yield Task(
        [Sample(id="again", input="What is the capital of France?", target="Paris")], scorer=match(), name="cached",
        solver=generate(cache=True),
    ), {"epochs": 1}  # fmt: skip


def clean(value):
    """Return the value without tracebacks, package versions, and paths of this machine."""
    if isinstance(value, dict):
        return {
            name: "..." if name.startswith("traceback") else {} if name == "packages" else clean(part)
            for name, part in value.items()
            if name not in ("revision", "task_file")
        }
    if isinstance(value, list):
        return [clean(part) for part in value]
    if isinstance(value, str) and not value.startswith(("data:", "attachment:")):
        return SECRET_PATH.sub("...", value) if str(Path.home()) in value or str(Path.cwd()) in value else value
    return value


def rewrite(path, target):
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            if name == "header.json" or name.startswith("samples/"):
                archive.writestr(name, json.dumps(clean(json.loads(source.read(name)))))


def describe_message(message):
    calls = getattr(message, "tool_calls", None) or []
    return [message.role, message.text, [[call.function, call.arguments] for call in calls]]


def describe_usage(usage):
    return usage.model_dump(exclude={"total_tokens"}) if usage else None


def read_logs(folder):
    """Return the samples of each log as inspect_ai reads them. The judge's model is not the model under test."""
    return {
        path.stem: [
            {
                "id": str(sample.id), "epoch": sample.epoch, "error": sample.error.message if sample.error else "",
                "answer": sample.output.completion, "served_model": sample.output.model,
                "messages": [describe_message(message) for message in sample.messages],
                "usage": {model: describe_usage(usage) for model, usage in sample.model_usage.items()},
                "calls": sum(event.event == "model" for event in sample.events),
                "scores": {
                    name: [score.value, score.explanation] for name, score in (sample.scores or {}).items()
                },
            }
            for sample in read_eval_log(str(path), resolve_attachments=True).samples
        ]
        for path in sorted(folder.glob("*.eval"))
        if path.stem != "sums"
    }  # fmt: skip


def main(folder):
    set_model_info("openai/gpt-4o", ModelInfo(cost=PRICES))
    set_model_info("anthropic/claude-3-5-sonnet-latest", ModelInfo(cost=PRICES))
    raw = folder / "raw"
    solver_model = get_model("openai/gpt-4o", custom_outputs=answer, api_key="none")
    judge_model = get_model("anthropic/claude-3-5-sonnet-latest", custom_outputs=judge, api_key="none")
    for task, options in list_tasks():
        for _ in range(2 if task.name == "cached" else 1):
            (log,) = eval(
                task, model=solver_model, model_roles={"grader": judge_model}, log_dir=str(raw), log_format="eval",
                display="none", max_connections=1, **options,
            )  # fmt: skip
        rewrite(log.location, folder / f"{task.name}.eval")
    shutil.rmtree(raw)
    (folder / "readings.json").write_text(json.dumps(read_logs(folder), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
