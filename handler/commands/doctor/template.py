"""Reads a CloudFormation or SAM template, and computes what its expressions are with given parameters."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

NO_VALUE: Final = "AWS::NoValue"
PSEUDO: Final = {
    "AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "123456789012",
    "AWS::StackName": "dragoman", "AWS::URLSuffix": "amazonaws.com",
}  # fmt: skip
PLAIN: Final = ("Ref", "Condition")
"""The short forms whose long ones have no Fn:: before them."""
MISFORMED: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the parts of a template raise that have another form than CloudFormation's."""


class NotATemplate(Exception):
    """The file is not a template. The message says why."""


class Unknown:
    """A value that only a deployment knows, such as the address of a gateway."""

    def __repr__(self) -> str:
        return "a value of the deployment"


UNKNOWN: Final = Unknown()


def read(path: Path) -> dict[str, Any]:
    """Returns the document, with long forms for !Ref and others. Raises NotATemplate, ImportError, OSError."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else _yaml(text)
    except ValueError as wrong:
        raise NotATemplate(" ".join(str(wrong).split())[:200]) from None
    if not isinstance(document, dict) or not isinstance(document.get("Resources"), dict):
        raise NotATemplate("it has no Resources")
    return document


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - the extra `doctor`

    loader_class: Any = type("Loader", (yaml.SafeLoader,), {})  # its own, for CloudFormation's tags

    def tagged(loader: Any, tag: str, node: Any) -> dict[str, Any]:
        if isinstance(node, yaml.ScalarNode):
            value: Any = loader.construct_scalar(node)
            value = value.split(".", 1) if tag == "GetAtt" else value
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            value = loader.construct_mapping(node, deep=True)
        return {tag if tag in PLAIN else f"Fn::{tag}": value}

    loader_class.add_multi_constructor("!", tagged)
    try:
        return yaml.load(text, loader_class)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as wrong:
        raise ValueError(wrong) from None


def as_text(value: Any) -> str:
    """Returns a scalar as CloudFormation converts it where it expects a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Expanded:
    """A template with parameters. `given`: values by parameter, over the template's defaults."""

    def __init__(self, document: Mapping[str, Any], given: Mapping[str, str]) -> None:
        self.parameters: Mapping[str, Any] = document.get("Parameters") or {}
        self.rules: Mapping[str, Any] = document.get("Rules") or {}
        self._conditions: Mapping[str, Any] = document.get("Conditions") or {}
        defaults = {
            name: as_text(each["Default"]) for name, each in self.parameters.items() if "Default" in (each or {})
        }
        self.values: dict[str, str] = {**defaults, **given}
        found = {name: each for name, each in document["Resources"].items() if isinstance(each, dict)}
        self.resources = {name: each for name, each in found.items() if self._exists(each)}

    def _exists(self, resource: Mapping[str, Any]) -> bool:
        condition = resource.get("Condition")
        return condition is None or self.holds({"Condition": condition}) is not False

    def holds(self, condition: Any) -> Any:
        """Decides a condition: True, False, or UNKNOWN."""
        return self.value(condition)

    def value(self, node: Any) -> Any:
        """Computes an expression. None: AWS::NoValue. UNKNOWN for what a deployment decides."""
        if isinstance(node, list):
            return [value for each in node if (value := self.value(each)) is not None]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            function, argument = next(iter(node.items()))
            if function in FUNCTIONS:
                return FUNCTIONS[function](self, argument)
            if str(function).startswith("Fn::"):  # a key of YAML can be a number
                return UNKNOWN
        return {key: value for key, each in node.items() if (value := self.value(each)) is not None}

    def ref(self, name: Any) -> Any:
        if name == NO_VALUE:
            return None
        return self.values.get(name, PSEUDO.get(name, UNKNOWN))

    def condition(self, name: Any) -> Any:
        return self.value(self._conditions[name]) if name in self._conditions else UNKNOWN


def _if(template: Expanded, argument: Sequence[Any]) -> Any:
    name, yes, no = argument
    decided = template.condition(name)
    return UNKNOWN if decided is UNKNOWN else template.value(yes if decided else no)


def _equals(template: Expanded, argument: Sequence[Any]) -> Any:
    first, second = map(template.value, argument)
    return UNKNOWN if UNKNOWN in (first, second) else as_text(first) == as_text(second)


def _not(template: Expanded, argument: Sequence[Any]) -> Any:
    decided = template.value(argument[0])
    return UNKNOWN if decided is UNKNOWN else not decided


def _all(template: Expanded, argument: Sequence[Any]) -> Any:
    decided = [template.value(each) for each in argument]
    return False if False in decided else UNKNOWN if UNKNOWN in decided else True


def _any(template: Expanded, argument: Sequence[Any]) -> Any:
    decided = [template.value(each) for each in argument]
    return True if True in decided else UNKNOWN if UNKNOWN in decided else False


def _sub(template: Expanded, argument: Any) -> Any:
    text, own = (argument, {}) if isinstance(argument, str) else argument

    def one(found: "re.Match[str]") -> str:
        value = template.value(own[found[1]]) if found[1] in own else template.ref(found[1])
        return found[0] if value is UNKNOWN or value is None else as_text(value)

    return re.sub(r"\$\{([^!}]+)\}", one, text)


def _join(template: Expanded, argument: Sequence[Any]) -> Any:
    parts = template.value(argument[1])
    return UNKNOWN if not isinstance(parts, list) or UNKNOWN in parts else str(argument[0]).join(map(as_text, parts))


FUNCTIONS: Final[dict[str, Callable[[Expanded, Any], Any]]] = {
    "Ref": Expanded.ref,
    "Condition": Expanded.condition,
    "Fn::If": _if,
    "Fn::Equals": _equals,
    "Fn::Not": _not,
    "Fn::And": _all,
    "Fn::Or": _any,
    "Fn::Sub": _sub,
    "Fn::Join": _join,
}
"""The functions that a template alone decides."""
