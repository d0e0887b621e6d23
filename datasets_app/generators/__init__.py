"""Parametric tasks, one module per task. Pure: no module here imports Django.

    generator = get_generator("arithmetic")
    params = generator.read_params({"length": 16, "max_depth": 3})
    case = next(generator.cases(params, random.Random(7)))
    reading = generator.answer.read("... Final Answer: 42", case.choices)

CONTRIBUTING.md describes how to add a task.
"""
