"""A hook of mkdocs: a page with all operations of the API, made from its OpenAPI document."""

import os
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = "api-reference.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, PAGE, content=write_reference(load_schema())))
    return files


def load_schema() -> dict[str, Any]:
    """Return the OpenAPI document. It needs no database."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    import django

    django.setup()
    from evalsite.api.urls import api

    return dict(api.get_openapi_schema())


def write_reference(schema: dict[str, Any]) -> str:
    """Return a page with a section for each operation: its address, its texts, its parameters and its answers."""
    about = "Made from the OpenAPI document of the site. [API](api.md) explains tokens, pages and errors."
    parts = ["# API reference", about]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            parts += [f"## {method.upper()} {path}", operation.get("summary", ""), operation.get("description", "")]
            rows = [_write_parameter(one) for one in operation.get("parameters", [])]
            if rows:
                parts.append("\n".join(["| parameter | in | required |", "| --- | --- | --- |", *rows]))
            answers = operation["responses"].items()
            parts.append("Answers: " + ", ".join(f"{code} {answer.get('description', '')}" for code, answer in answers))
    return "\n\n".join(part for part in parts if part)


def _write_parameter(parameter: dict[str, Any]) -> str:
    required = "yes" if parameter.get("required") else ""
    return f"| `{parameter['name']}` | {parameter['in']} | {required} |"
