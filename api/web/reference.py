"""``/docs`` as one page of HTML: every call with its parameters, examples, answers and a form to try it.

Swagger UI would load its scripts from a CDN; this page works without a network.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")


def page(document: dict[str, Any]) -> str:
    """The whole page; ``document`` is an OpenAPI 3.1 document of ours."""
    info = document["info"]
    groups = _by_tag(document)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{html.escape(info['title'])} API</title>",
        f"<style>{_asset('reference.css')}</style></head><body>",
        f"<nav><h1>{html.escape(info['title'])}</h1>{_menu(groups)}</nav><main>",
        f"<header><h1>{html.escape(info['title'])} <small>{html.escape(info['version'])}</small></h1>",
        _prose(info.get("description", "")),
        '<p>Machine-readable: <a href="openapi.json">openapi.json</a>.</p>',
        '<label class="token">Token for the forms below (kept in this tab only)'
        '<input id="token" type="password" autocomplete="off" placeholder="carillon token …"></label>',
        "</header>",
    ]
    for tag, operations in groups.items():
        parts.append(f'<section><h2 id="{_slug(tag)}">{html.escape(tag)}</h2>')
        parts.extend(_operation(method, path, operation) for method, path, operation in operations)
        parts.append("</section>")
    parts.append('<section><h2 id="shapes">Shapes</h2>')
    parts.extend(_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    parts.append(f"</section></main><script>{_asset('reference.js')}</script></body></html>")
    return "".join(parts)


def _asset(name: str) -> str:
    return files("api.web").joinpath(name).read_text("utf-8")


def _by_tag(document: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tag = (item[method].get("tags") or ["Other"])[0]
                groups.setdefault(tag, []).append((method, path, item[method]))
    return groups


def _menu(groups: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    parts = []
    for tag, operations in groups.items():
        links = "".join(
            f'<li><a href="#{operation["operationId"]}">'
            f"{html.escape(operation.get('summary', path))}</a></li>"
            for _, path, operation in operations
        )
        parts.append(f'<h2><a href="#{_slug(tag)}">{html.escape(tag)}</a></h2><ul>{links}</ul>')
    return "".join(parts) + '<h2><a href="#shapes">Shapes</a></h2>'


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    identifier = operation["operationId"]
    scopes = [scope for entry in operation.get("security", []) for scope in next(iter(entry.values()))]
    need = f'<span class="scope">{html.escape(" ".join(scopes))}</span>' if scopes else ""
    return "".join(
        (
            f'<article id="{identifier}"><h3>{html.escape(operation.get("summary", ""))} {need}</h3>',
            f'<p class="call"><b class="{method}">{method.upper()}</b> <code>{html.escape(path)}</code></p>',
            _prose(operation.get("description", "")),
            _parameters(operation.get("parameters", [])),
            _bodies(operation),
            _answers(operation.get("responses", {})),
            _form(method, path, operation),
            "</article>",
        )
    )


def _parameters(parameters: list[dict[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{html.escape(item['name'])}</code></td><td>{html.escape(item['in'])}</td>"
        f"<td>{_type(_without_null(item.get('schema', {})))}</td><td>{_inline(_text_of(item))}</td></tr>"
        for item in parameters
    )
    return f"<h4>Parameters</h4><table>{rows}</table>"


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is there or left out: nobody can send null in it."""
    kinds = [inner for inner in schema.get("anyOf", []) if inner.get("type") != "null"]
    return {"anyOf": kinds} if kinds else schema


def _text_of(parameter: dict[str, Any]) -> str:
    return str(parameter.get("description") or parameter.get("schema", {}).get("description", ""))


def _bodies(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return ""
    media_types = " or ".join(f"<code>{html.escape(name)}</code>" for name in content)
    media = next(iter(content.values()))
    parts = [f"<h4>Body</h4><p>{media_types}: {_type(media['schema'])}</p>"]
    parts.extend(
        f"<details><summary>{html.escape(example['summary'])}</summary>{_json(example['value'])}</details>"
        for example in media.get("examples", {}).values()
    )
    return "".join(parts)


def _answers(responses: dict[str, Any]) -> str:
    rows = []
    for status, response in sorted(responses.items()):
        media: list[dict[str, Any]] = list(response.get("content", {}).values())
        schema = media[0].get("schema", {}) if media else {}
        rows.append(
            f"<tr><td><b>{html.escape(status)}</b></td><td>{_inline(response.get('description', ''))}</td>"
            f"<td>{_type(schema) if schema else ''}</td></tr>"
        )
    return f"<h4>Answers</h4><table>{''.join(rows)}</table>"


def _form(method: str, path: str, operation: dict[str, Any]) -> str:
    fields = "".join(
        f"<label>{html.escape(item['name'])}"
        f'<input name="{html.escape(item["name"])}" data-in="{html.escape(item["in"])}"'
        f"{' required' if item.get('required') else ''}></label>"
        for item in operation.get("parameters", [])
    )
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        examples = list(next(iter(content.values())).get("examples", {}).values())
        text = html.escape(json.dumps(examples[0]["value"] if examples else {}, indent=2))
        fields += f'<label>Body<textarea name="body" rows="8" spellcheck="false">{text}</textarea></label>'
    return (
        f'<details class="try"><summary>Try it</summary><form data-method="{method.upper()}" '
        f'data-path="{html.escape(path)}">{fields}<button>Send</button><pre hidden></pre></form></details>'
    )


def _shape(name: str, schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(field)}</code>{' *' if field in schema.get('required', []) else ''}</td>"
        f"<td>{_type(inner)}</td><td>{_inline(inner.get('description', ''))}</td></tr>"
        for field, inner in schema.get("properties", {}).items()
    )
    return (
        f'<article id="shape-{html.escape(name)}"><h3>{html.escape(name)}</h3>'
        f"{_prose(schema.get('description', ''))}<table>{rows}</table></article>"
    )


def _type(schema: dict[str, Any]) -> str:
    """The kind of value, its bounds, and what it is when left out."""
    default = schema.get("default")
    unsaid = default in (None, "", []) or isinstance(default, dict)  # of a shape: its own fields say it
    shown = "" if unsaid else f", default <code>{_text(json.dumps(default))}</code>"
    return " or ".join(dict.fromkeys(_types(schema))) + shown


def _types(schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        name = html.escape(schema["$ref"].rsplit("/", 1)[-1])
        yield f'<a href="#shape-{name}">{name}</a>'
    elif "anyOf" in schema:
        for inner in schema["anyOf"]:
            yield from _types(inner)
    elif "enum" in schema:
        yield " · ".join(f"<code>{_text(value)}</code>" for value in schema["enum"])
    elif "const" in schema:
        yield f"<code>{_text(schema['const'])}</code>"
    elif schema.get("type") == "array":
        yield f"list of {_type(schema.get('items', {}))}{_size(schema, 'Items', 'items')}"
    else:
        yield (
            _text(schema.get("format") or schema.get("type") or "any JSON")
            + _range(schema)
            + _size(schema, "Length", "characters")
        )


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is None and high is None:
        return ""
    return f" from {low}" if high is None else f" up to {high}" if low is None else f", {low} to {high}"


def _size(schema: dict[str, Any], of: str, noun: str) -> str:
    high = schema.get(f"max{of}")
    return "" if high is None else f", at most {high} {noun}"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _json(value: Any) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _prose(text: str) -> str:
    return "".join(
        f"<p>{_inline(' '.join(block.split()))}</p>" for block in text.split("\n\n") if block.strip()
    )


def _inline(text: str) -> str:
    """Escaped, with `code` and **strong** of Markdown."""
    escaped = html.escape(text)
    escaped = re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())
