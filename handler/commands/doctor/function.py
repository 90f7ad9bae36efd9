"""The function of a template: its parameters, time, memory, disk, permissions and settings against what models need."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from core.errors import nearest
from core.records import NamedTuple
from handler.commands.doctor import variables
from handler.commands.doctor.findings import Finding, error, warning
from handler.commands.doctor.template import UNKNOWN, Expanded, as_text
from handler.settings import ALIKE

HANDLERS: Final = re.compile(r"(handler|dragoman)\.aws\.lambda_handler")
SAM: Final = "AWS::Serverless::Function"
KINDS: Final = (SAM, "AWS::Lambda::Function")
GATEWAYS: Final = {
    "AWS::Serverless::Api": 29, "AWS::ApiGateway::RestApi": 29,
    "AWS::Serverless::HttpApi": 30, "AWS::ApiGatewayV2::Api": 30,
    "Api": 29, "HttpApi": 30,
}  # fmt: skip
"""The most seconds for which a gateway waits (AWS, "Amazon API Gateway quotas"); the first is a default."""
DEFAULT_SECONDS: Final = 3
DEFAULT_MB: Final = 128
MEMORY: Final = range(128, 10241)
STORAGE: Final = range(512, 10241)
SECONDS: Final = range(1, 901)
LISTS: Final = ("CommaDelimitedList", "List<")
"""How the types of parameters begin whose values are lists, with commas between."""
PAIR: Final = re.compile(
    r"""(?:ParameterKey=["']?(\w+)["']?,ParameterValue=|(?<!\S)["']?(\w+)["']?=)"""
    r"""(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|((?:\\.|[^\s"\\])+))"""
)
"""A parameter in samconfig.toml, in one of SAM's two forms: its name, and its value in quotes or without spaces."""
ESCAPED: Final = re.compile(r"\\([ \"'])")
NEEDED: Final = {
    "s3:GetObject": "no model can be fetched",
    "s3:ListBucket": "no version is found by itself, and a missing model reads as a forbidden one",
}


class FunctionFacts(NamedTuple):
    """What a template says about the function. `properties`: all of them, expanded.

    Megabytes, seconds; None for a number that only a deployment knows.
    """

    name: str
    memory: int | None
    storage: int | None
    timeout: int | None
    properties: Mapping[str, Any]


def parameters(template: Expanded, given: Mapping[str, str], where: str) -> Iterator[Finding]:
    """Yields the parameters that do not exist or break their own rules. `given`: those of samconfig.toml."""
    for name in given:
        if name not in template.parameters:
            near = nearest(name, template.parameters, ALIKE)
            cure = f"did you mean {near}?" if near else f"name one of {', '.join(template.parameters)}"
            yield error("unknown-parameter", "samconfig.toml", f"the template has no parameter {name}", cure)
    for name, said in template.parameters.items():
        value = template.values.get(name)
        if value is not None and (problem := _broken(said or {}, value)):
            yield error("parameter-value", f"{where}: {name}", f"is {value!r}", f"set it to {problem}")
    yield from _rules(template, where)


def _rules(template: Expanded, where: str) -> Iterator[Finding]:
    for rule in template.rules.values():
        if "RuleCondition" in rule and template.holds(rule["RuleCondition"]) is not True:
            continue
        for each in rule.get("Assertions", ()):
            if template.holds(each["Assert"]) is False:
                what = each.get("AssertDescription", "a rule of the template fails")
                yield error("template-rule", where, what, "set the parameters in samconfig.toml or with --guided")


def _broken(said: Mapping[str, Any], value: str) -> str:
    """Returns what a parameter's rules expect, "" if the value keeps them. Each member of a list has to keep them."""
    kind, allowed = str(said.get("Type")), [as_text(each) for each in said.get("AllowedValues") or ()]
    for each in map(str.strip, value.split(",")) if kind.startswith(LISTS) else (value,):
        if allowed and each not in allowed:
            return f"one of {', '.join(allowed)}"
        with suppress(re.error):  # CloudFormation's patterns are Java's
            if "AllowedPattern" in said and each and not re.fullmatch(str(said["AllowedPattern"]), each):
                return f"a text like {said['AllowedPattern']}"
    if kind == "Number":
        least, most = float(said.get("MinValue", "-inf")), float(said.get("MaxValue", "inf"))
        if not re.fullmatch(r"-?\d+(\.\d+)?", value) or not least <= float(value) <= most:
            return f"a number from {least:g} to {most:g}"
    return ""


def overrides(folder: Path) -> tuple[dict[str, str], str]:
    """Returns the parameters of samconfig.toml beside a template, and why it cannot be read."""
    try:
        config = tomllib.loads((folder / "samconfig.toml").read_text(encoding="utf-8"))
        found = {**_section(config, "global"), **_section(config, "deploy")}
        return dict(_pairs(found.get("parameter_overrides", ""))), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, TypeError, ValueError) as wrong:
        return {}, str(wrong)


def _section(config: Any, command: str) -> dict[str, Any]:
    """Returns what the file says of a command. Raises TypeError."""
    for key in ("default", command, "parameters"):
        config = config.get(key, {})
        if not isinstance(config, dict):
            raise TypeError(f"{key} is {config!r}; expected a table")
    found: dict[str, Any] = config
    return found


def _pairs(found: Any) -> Iterator[tuple[str, str]]:
    """Yields names and values of parameter_overrides, as SAM reads them. Raises ValueError."""
    if isinstance(found, list):
        for each in found:
            yield from _pairs(each)
    elif isinstance(found, dict):
        for name, value in found.items():
            yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)
    else:
        pairs = list(PAIR.finditer(str(found)))
        if not pairs and found and not str(found).startswith("file://"):
            raise ValueError(f"parameter_overrides is {found!r}; expected Name=value")
        for pair in pairs:
            yield pair[1] or pair[2], ESCAPED.sub(r"\1", pair[pair.lastindex or 0])


def find(template: Expanded, defaults: Mapping[str, Any]) -> FunctionFacts | None:
    """Returns the function that serves models. `defaults`: the Globals of functions, for those of SAM's kind."""
    shared = template.value(dict(defaults))
    for name, resource in template.resources.items():
        computed = template.value(resource.get("Properties"))
        own = computed if isinstance(computed, dict) else {}
        properties = _merged(shared, own) if resource.get("Type") == SAM else own
        if resource.get("Type") in KINDS and HANDLERS.fullmatch(str(properties.get("Handler", ""))):
            storage = properties.get("EphemeralStorage")
            return FunctionFacts(
                name,
                _number(properties.get("MemorySize"), DEFAULT_MB),
                _number(storage.get("Size") if isinstance(storage, dict) else storage, STORAGE[0]),
                _number(properties.get("Timeout"), DEFAULT_SECONDS),
                properties,
            )
    return None


def _merged(shared: Any, own: Any) -> Any:
    """Returns a function's property beside that of Globals (SAM, "Globals section"): maps and lists are joined."""
    if isinstance(shared, dict) and isinstance(own, dict):
        both = {name: _merged(shared[name], own[name]) for name in shared.keys() & own.keys()}
        return {**shared, **own, **both}
    if isinstance(shared, list) and isinstance(own, list):
        return [*shared, *own]
    return own


def _number(value: Any, default: int) -> int | None:
    if value is None:
        return default
    return int(value) if re.fullmatch(r"\d+", str(value)) else None


def examine(template: Expanded, facts: FunctionFacts, where: str) -> Iterator[Finding]:
    """Yields what Lambda or the gateway would not take, and settings that the function would not start with."""
    place = f"{where}: {facts.name}"
    events = facts.properties.get("Events")
    own = events.values() if isinstance(events, dict) else ()  # of the kind Api, they make a gateway by themselves
    kinds = [str(each.get("Type")) for each in (*template.resources.values(), *own) if isinstance(each, dict)]
    limits = [(GATEWAYS[kind], kind) for kind in kinds if kind in GATEWAYS]
    if limits and facts.timeout is not None and facts.timeout > min(limits)[0]:
        seconds, kind = min(limits)
        what = f"Timeout is {facts.timeout} s, and the gateway ({kind}) answers 504 after {seconds}"
        cure = f"set it to {seconds}; longer work needs a function URL. A load goes on in the next request"
        yield warning("timeout-gateway", place, what, cure)
    for name, value, allowed in (
        ("MemorySize", facts.memory, MEMORY),
        ("EphemeralStorage", facts.storage, STORAGE),
        ("Timeout", facts.timeout, SECONDS),
    ):
        if value is not None and value not in allowed:
            yield error("function-limit", place, f"{name} is {value}", f"set it to {allowed[0]} up to {allowed[-1]}")
    yield from _settings(facts, place)
    yield from _policies(facts, place)


def _settings(facts: FunctionFacts, place: str) -> Iterator[Finding]:
    environment = facts.properties.get("Environment")
    own = environment.get("Variables") if isinstance(environment, dict) else None
    known = (
        {name: as_text(value) for name, value in own.items() if value is not UNKNOWN} if isinstance(own, dict) else {}
    )
    found, _ = variables.examine(known)
    yield from (each._replace(where=f"{place}, {each.where}") for each in found)


def _policies(facts: FunctionFacts, place: str) -> Iterator[Finding]:
    """Yields the permissions that inline policies lack. A role of its own is not looked into."""
    policies = facts.properties.get("Policies")
    if not isinstance(policies, list) or "Role" in facts.properties:
        return
    allowed = [pattern.lower() for policy in policies for pattern in _allowed(policy)]
    for action, without in NEEDED.items():
        if not any(fnmatchcase(action.lower(), pattern) for pattern in allowed):
            yield error("function-permission", place, f"its policies do not grant {action}: {without}", f"add {action}")


def _allowed(policy: Any) -> Iterator[str]:
    """Yields the actions that a policy allows, as patterns.

    What its text does not say counts as every action: a policy by name, and a value that only a deployment knows.
    """
    for statement in _listed(policy.get("Statement", UNKNOWN) if isinstance(policy, dict) else UNKNOWN):
        if not isinstance(statement, dict):
            yield "*"
        elif statement.get("Effect") != "Deny":
            actions = _listed(statement.get("Action", UNKNOWN))
            yield from (each if isinstance(each, str) else "*" for each in actions)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
