"""The map of the house, and its limits: what ARCHITECTURE.md and CONTRIBUTING.md name exists, and nothing grows large.

In these documents a code span is checked word by word. A word is
  * a path from the root of the repository, or the name of a file anywhere in it: it has a slash or a known ending;
  * a dotted name: a module of core or handler, and what it defines. Its first parts may be left out if the rest means
    one thing: `engine.answer` is `core.engine.answer`;
  * a single name: of a setting, a module, or something that core or handler defines;
  * after `make`, a target of the Makefile.
Spans with other words (of a shell, of HTTP) hold at least one blank or begin with a character that no such word has.
"""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from handler.settings import SETTINGS

ROOT = Path(__file__).parents[1]
DOCUMENTS = {"ARCHITECTURE.md": 130, "CONTRIBUTING.md": 90}
"""The documents that are checked, with the most lines that each may have."""
SOURCES = sorted(path for root in ("core", "handler") for path in (ROOT / root).rglob("*.py"))
ENDINGS = ("binpb", "json", "md", "proto", "py", "pyi", "toml", "txt", "yaml")
LONGEST_MODULE, LARGEST_FOLDER, LARGEST_ROOT = 300, 18, 12
LONGEST_FUNCTION, MEDIAN_FUNCTION = 45, 7
HOMONYMS = {
    "Load": "core.operations has the operation that a client asks for, handler.lifecycle.single_flight the work itself"
}
"""Names that more than one public class has, each with the reason."""


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(path: Path) -> str:
    """Returns the dotted name of a module; a package is its __init__."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for path in SOURCES}


def targets(statement: ast.AST) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return [each for target in statement.targets for each in getattr(target, "elts", [target])]
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def defined(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Returns what a module or a class defines, by name. An import does not define anything."""
    found: dict[str, ast.stmt] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[statement.name] = statement
        found |= {target.id: statement for target in targets(statement) if isinstance(target, ast.Name)}
    return found


def members(node: ast.stmt) -> dict[str, ast.stmt]:
    """Returns the members of a class, including those that its methods assign to self."""
    if not isinstance(node, ast.ClassDef):
        return {}
    own = {
        target.attr: statement
        for statement in ast.walk(node)
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in targets(statement)
        if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"
    }
    return own | defined(node.body)


@cache
def scope_of(module: Path) -> dict[str, ast.stmt]:
    """Returns what a module defines."""
    return defined(tree(module).body)


def holds(module: Path, names: list[str]) -> bool:
    """Returns whether a module has a name, a member of that name, and so on."""
    scope = scope_of(module)
    for name in names:
        if name not in scope:
            return False
        scope = members(scope[name])
    return True


def resolves(word: str) -> bool:
    """Returns whether a dotted name means exactly one thing."""
    parts = word.split(".")
    found = set()
    for cut in range(1, len(parts) + 1):
        name, rest = ".".join(parts[:cut]), parts[cut:]
        found |= {each for each, path in MODULES.items() if f".{each}".endswith(f".{name}") and holds(path, rest)}
    return len(found) == 1 or word in MODULES


@cache
def single_names() -> frozenset[str]:
    names = {setting.variable for setting in SETTINGS} | {part for name in MODULES for part in name.split(".")}
    for path in SOURCES:
        for name, node in scope_of(path).items():
            names |= {name, *members(node)}
    return frozenset(names)


@cache
def files() -> frozenset[str]:
    folders = ("core", "handler", "tests", "benchmarks", "proto", "models", "events")
    return frozenset(path.name for path in (*ROOT.glob("*"), *(p for f in folders for p in (ROOT / f).rglob("*"))))


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][a-z0-9-]*):", document("Makefile"), re.MULTILINE))


def exists(word: str) -> bool:
    if "/" in word:
        return (ROOT / word).exists()
    if word.rpartition(".")[2] in ENDINGS:
        return word in files()
    return resolves(word) if "." in word else word in single_names() or word in files()


def unknown(span: str) -> list[str]:
    """Returns the words of a code span that do not name anything."""
    first, *rest = span.split()
    if first == "make":
        return [word for word in rest if "=" not in word and word not in make_targets()]
    if rest:  # a command: its paths and files
        rest = [word for word in rest if re.fullmatch(r"\w[\w./-]*", word) and "/" in word]
        return [word for word in rest if not exists(word)]
    return [first] if re.fullmatch(r"\w[\w./-]*", first) and not exists(first) else []


def spans(text: str) -> list[str]:
    """Returns the code spans of a document, the dotted names in its pictures, and the lines of its consoles."""
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "mermaid":
            found += re.findall(r"\b(?:core|handler)(?:\.\w+)+", block)
        else:
            found += [line.partition("#")[0] for line in block.splitlines() if line.partition("#")[0].strip()]
    return found + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_exist(name: str) -> None:
    """Every path, module and attribute that a document names exists."""
    assert [word for span in spans(document(name)) for word in unknown(span)] == []


@pytest.mark.parametrize(
    "span",
    [
        "core/engines",
        "core/engine.pi",
        "engine.py.py",
        "core.engines",
        "core.engine.anwser",
        "registry.Registry.used",
        "http.refuse",  # three modules have this name
        "dispatch.answerable",  # imported there, and not defined
        "DRAGOMAN_NOTHING",
        "Registrar",
        "make everything",
        "pytest tests/nowhere",
    ],
)
def test_a_wrong_name_is_found(span: str) -> None:
    """A name that does not exist, or that more than one module has, is reported."""
    assert unknown(span)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """Every relative link of a document is a file."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document(name))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(("name", "most"), DOCUMENTS.items())
def test_documents_are_short(name: str, most: int) -> None:
    """A document that is read as a whole has few lines."""
    assert len(document(name).splitlines()) <= most


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=dotted)
def test_packages_say_what_they_hold(path: Path) -> None:
    """Every package says in one line what it holds."""
    docstring = ast.get_docstring(tree(path))
    assert docstring
    assert "\n" not in docstring


def test_folders_are_packages() -> None:
    """Every folder with modules has an __init__.py."""
    assert [path for path in {path.parent for path in SOURCES} if not (path / "__init__.py").exists()] == []


def test_modules_are_short() -> None:
    """No module has more lines than fit in a reader's head."""
    lengths = {dotted(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_folders_are_small() -> None:
    """No folder has more modules than a reader can survey."""
    counts = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert {dotted(folder): count for folder, count in counts.items() if count > LARGEST_FOLDER} == {}


def test_the_root_of_handler_is_small() -> None:
    """The top level of handler has few modules and packages."""
    entries = {path.relative_to(ROOT / "handler").parts[0] for path in SOURCES if path.is_relative_to(ROOT / "handler")}
    assert len(entries) <= LARGEST_ROOT


def test_functions_are_short() -> None:
    """No function is long, and most are a few lines."""
    lengths = {
        (dotted(path), node.name, node.lineno): (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: length for function, length in lengths.items() if length > LONGEST_FUNCTION} == {}
    assert median(lengths.values()) <= MEDIAN_FUNCTION


def test_class_names_have_one_meaning() -> None:
    """No two public classes have the same name, except for those with a reason."""
    homes = defaultdict(set)
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(dotted(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1}.keys() == HOMONYMS.keys()
