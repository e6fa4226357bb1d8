"""The reference pages: commands, Python API, columns and formats; and the documents of ``docs/``."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.source import SCHEMAS
from kafka_eos_checks.book import pages
from kafka_eos_checks.book.listing import listing
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Book
from kafka_eos_checks.cli import doors
from kafka_eos_checks.cli.command import parser_of
from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.ledger.report import report_of

PACKAGES = {
    "machines": "reference/kafka_eos/machines",
    "formats": "reference/kafka_eos/formats",
    "wire": "reference/kafka_eos/wire",
    "histories": "reference/kafka_eos/histories",
    "clients": "reference/kafka_eos/clients",
    "testing": "checks/kafka_eos_checks/testing",
    "pyspark_kafkalog": "checks/pyspark_kafkalog",
}
"""Public package -> its folder."""
_ROLE = re.compile(r":\w+:`~?\.?([^`]+)`|``([^`]+)``")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def commands_page() -> Page:
    """The page of the commands: the help of each."""
    parts = ["The help of every command, as the command prints it."]
    for words in ((), *doors.calls()):
        call = " ".join(("kafka-eos", *words))
        parser, _ = parser_of([*words])
        text = parser.format_help().rstrip()
        parts.append(f"## {call}\n\n" + pages.raw(f'<pre class="output">{escape(text)}</pre>'))
    return Page(path="reference/commands", title="The command kafka-eos", text="\n\n".join(parts))


def api_pages(book: Book) -> Iterator[Page]:
    """A page for each public package: its modules, classes and functions with their docstrings."""
    for name, folder in PACKAGES.items():
        modules = [path for path in book.sources.texts if path.startswith(f"{folder}/") and path.endswith(".py")]
        parts = [_module(book, path) for path in sorted(modules) if "/_" not in path or path.endswith("__init__.py")]
        yield Page(path=f"reference/api-{name}", title=f"Package {name}", text="\n\n".join(parts), in_menu=False)


def _module(book: Book, path: str) -> str:
    tree = ast.parse(book.sources.texts[path])
    dotted = path.split("/", 1)[1].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    said = _plain((ast.get_docstring(tree) or "").split("\n\n")[0])
    parts = [f"## {pages.prose(dotted)}\n\n{pages.prose(said)}"]
    defined = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    parts += [_definition(node, dotted) for node in defined if not node.name.startswith("_")]
    return "\n\n".join(parts)


def _definition(node: ast.ClassDef | ast.FunctionDef, dotted: str) -> str:
    """A class or function: its head, its docstring, and the heads of a class's public methods."""
    rows = [_head(node)]
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
        rows += [f"    {_head(each)}  # {_first(each)}" for each in methods]
    code = listing("python", "\n".join(rows), lambda _: None)
    said = _plain(ast.get_docstring(node) or "")
    return pages.raw(
        f'<div id="{escape(f"{dotted}.{node.name}")}" class="small highlight">{code}</div>'
        f'<pre class="docstring">{escape(said)}</pre>'
    )


def _first(node: ast.FunctionDef) -> str:
    return _plain((ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " "))


def _plain(docstring: str) -> str:
    """A docstring without the marks of reStructuredText."""
    return _ROLE.sub(lambda found: found[1] or found[2], docstring)


def _head(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The line with which a definition starts, on one line and without comments."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(each) for each in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returned = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"def {node.name}({ast.unparse(node.args)}){returned}"


def formats_page() -> Page:
    """The page of the formats: columns of ``kafka_log``, histories, verdicts."""
    parts = [
        "The columns of the data source `kafka_log`, the events of histories, and the verdicts of reports.",
        "## Columns of kafka_log\n\nThe option `granularity` chooses the table.",
    ]
    for name, columns in SCHEMAS.items():
        rows = [(f"<code>{escape(column)}</code>", escape(kind)) for column, kind in columns.items()]
        parts.append(f"### {name}\n" + pages.table(("Column", "Type"), rows))
    for title, (schema, said) in schemas().items():
        keys = [
            (f"<code>{escape(name)}</code>", escape(_type_of(part)), escape(part.get("description", "")))
            for name, part in schema.get("items", schema)["properties"].items()
        ]
        to = pages.link("JSON Schema", pages.address_of_file(schema_file(title)))
        parts.append(f"## {title}\n\n{said} {to}." + pages.table(("Key", "Type", "Meaning"), keys))
        shown = json.dumps(schema, indent=1)
        parts.append(f"### JSON Schema: {title}\n" + pages.raw(f'<pre class="output">{escape(shown)}</pre>'))
    return Page(path="reference/formats", title="Columns and formats", text="\n\n".join(parts))


def schema_file(title: str) -> str:
    """The file of a schema, from the root of the book."""
    return f"_static/{title.lower()}.schema.json"


def schemas() -> dict[str, tuple[dict[str, Any], str]]:
    """The JSON Schemas of the formats, each with what the format is."""
    verdict = json_schema(Verdict)
    del verdict["$schema"]
    verdict["properties"]["standing"] = {
        "enum": [each.value for each in Standing],
        "description": "whether all is as expected, something differs, was not judged, or nothing was there to judge.",
    }
    example = Verdict(check="model", name="PartitionLog", expected="holds", found="holds", ok=True)
    report = {
        "$schema": _DRAFT,
        "title": "Report",
        **schema_like(json.loads(json.dumps(report_of([example]).to_json()))),
    }
    report["properties"]["verdicts"]["items"] = verdict
    report["properties"]["environment"] = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "History": (
            json_schema(Event),
            "A history is a file of JSON lines, an event a line. Keys without a value are left out.",
        ),
        "Verdicts": (
            {"$schema": _DRAFT, "title": "Verdicts", "type": "array", "items": verdict},
            "`--json FILE` writes a list of verdicts.",
        ),
        "Report": (report, "`kafka-eos ledger report` writes report.json next to the page, with the same content."),
    }


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _type_of(schema: dict[str, Any]) -> str:
    """The type that a schema asks for, in a word or two."""
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    return f"{schema['type']} of {_type_of(schema['items'])}" if schema.get("items") else schema.get("type", "any")


def schema_like(*values: Any) -> dict[str, Any]:
    """The JSON Schema of values like these: the keys that some have, the types that they have."""
    found: list[dict[str, Any]] = []
    objects = [each for each in values if isinstance(each, dict)]
    if objects:
        names = list(dict.fromkeys(name for each in objects for name in each))
        parts = {name: schema_like(*(each[name] for each in objects if name in each)) for name in names}
        needed = [name for name in names if all(name in each for each in objects)]
        found.append({"type": "object", "properties": parts, "required": needed})
    lists = [each for each in values if isinstance(each, list)]
    if lists:
        found.append({"type": "array", "items": schema_like(*(item for each in lists for item in each))})
    kinds = dict.fromkeys(_PLAIN[type(each)] for each in values if type(each) in _PLAIN)
    found += [{"type": kind} for kind in kinds]
    found += [{"type": "null"}] if None in values else []
    return found[0] if len(found) == 1 else {"anyOf": found} if found else {}


def json_schema(cls: type) -> dict[str, Any]:
    """The JSON Schema of a dataclass's objects.

    Raises:
        TypeError: for a type that JSON has no schema for here.
    """
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    meanings = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(inspect.getdoc(cls) or "")}
    needed = [each.name for each in fields(cls) if each.default is each.default_factory]  # both are MISSING
    parts = {each.name: {**_schema_of(hints[each.name]), "description": meanings[each.name]} for each in fields(cls)}
    return {
        "$schema": _DRAFT,
        "title": cls.__name__,
        "type": "object",
        "properties": parts,
        "required": needed,
        "additionalProperties": False,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    origin, given = get_origin(hint), get_args(hint)
    if isinstance(hint, UnionType) or (origin is not None and NoneType in given):
        kinds = [_schema_of(each) for each in given if each is not NoneType]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(given[0])}
    if (origin is not None and isinstance(origin, type) and issubclass(origin, dict)) or "Mapping" in str(origin):
        return {"type": "object", "additionalProperties": _schema_of(given[1])}
    raise TypeError(f"no JSON Schema for {hint}")


def document(path: Path, where: str, title: str = "") -> Page:
    """A document of the project as a page; links to files that are not pages become text."""
    text = path.read_text(encoding="utf-8")
    heading, _, rest = text.partition("\n")

    def linked(found: re.Match[str]) -> str:
        target, _, place = found[2].partition("#")
        if found[2].startswith("http"):
            return f"{found[1]} ({found[2]})"
        if not target:
            return found[0]
        name = Path(target).stem
        if target.endswith(".md") and (path.parent / target).resolve().parent.name == "docs":
            return pages.link(found[1].replace("`", ""), pages.address(f"docs/{name}", place))
        return found[1]

    return Page(path=where, title=title or heading.removeprefix("# "), text=_LINK.sub(linked, rest))


def document_pages(book: Book) -> Iterator[Page]:
    """The documents of ``docs/``, and the changelog."""
    for path in sorted((book.sources.root / "docs").glob("*.md")):
        yield document(path, f"docs/{path.stem}")
    yield document(book.sources.root / "examples" / "exactly-once-app" / "README.md", "docs/application-tests")
    yield document(book.sources.root / "CHANGELOG.md", "changelog")


def api_index() -> Page:
    """The list of the public packages."""
    rows = [
        (pages.link(name, pages.address(f"reference/api-{name}")), f"<code>{folder}</code>")
        for name, folder in PACKAGES.items()
    ]
    said = (
        "The public packages, from their docstrings. A machine's methods are next to their TLA+, on its module's page."
    )
    return Page(path="reference/api", title="Python packages", text=said + pages.table(("Package", "Folder"), rows))


def reference_pages(book: Book) -> Iterator[Page]:
    """All reference pages."""
    yield commands_page()
    yield api_index()
    yield from api_pages(book)
    yield formats_page()
    yield from document_pages(book)
