"""Expands template.yaml as CloudFormation does, in SAM's environment: the transform, rules, conditions, parameters.

    python expansion.py TEMPLATE < {"name": {"Parameter": "value"}, ...}

Prints JSON: for each name `refused` (the descriptions of the rules' assertions that fail), `resources` and `outputs` as
they would be made, and `lint`: what cfn-lint finds in them.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from cfnlint.api import lint
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

PSEUDO = {
    "AWS::AccountId": "123456789012", "AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::StackName": "mine",
    "AWS::URLSuffix": "amazonaws.com",
}  # fmt: skip
NOTHING = {"Ref": "AWS::NoValue"}
DECIDED = {
    "Fn::Equals": lambda texts: texts[0] == texts[1],
    "Fn::Not": lambda truths: not truths[0],
    "Fn::And": all,
    "Fn::Or": any,
}


class Policies:
    """Stands for the account's list of managed policies."""

    def load(self) -> dict[str, str]:
        return {}


class Stack:
    """One expansion."""

    def __init__(self, template: dict[str, Any], parameters: dict[str, str]) -> None:
        defaults = {name: str(each.get("Default", "")) for name, each in template["Parameters"].items()}
        assert set(parameters) <= set(defaults), parameters
        self.values = {**defaults, **parameters, **PSEUDO}
        self.mappings, self.conditions = template["Mappings"], template["Conditions"]

    def truth(self, name: str) -> bool:
        return bool(self.resolved(self.conditions[name]))

    def resolved(self, node: Any) -> Any:
        """Returns a part of the template without parameters, conditions and mappings."""
        if isinstance(node, list):
            return [each for each in map(self.resolved, node) if each != NOTHING]
        if not isinstance(node, dict):
            return node
        functions = {
            "Fn::If": lambda value: self.resolved(value[1 if self.truth(value[0]) else 2]),
            "Ref": lambda value: self.values.get(value, {"Ref": value}),
            "Condition": self.truth,
            "Fn::Sub": self.substituted,
            "Fn::FindInMap": self.looked_up,
            "Fn::Split": self.split,
        }
        ((name, value), *more) = node.items() or [("", None)]
        if name in DECIDED:
            return DECIDED[name](self.resolved(value))
        if name in functions and not more:
            return functions[name](value)
        members = {key: self.resolved(value) for key, value in node.items()}
        return {key: value for key, value in members.items() if value != NOTHING}

    def looked_up(self, value: list[Any]) -> Any:
        names = self.resolved(value)
        return self.mappings[names[0]][names[1]][names[2]]

    def split(self, value: list[Any]) -> Any:
        separator, text = self.resolved(value)
        return text.split(separator) if isinstance(text, str) else {"Fn::Split": [separator, text]}

    def substituted(self, value: Any) -> Any:
        text, members = (value, {}) if isinstance(value, str) else (value[0], self.resolved(value[1]))
        text = re.sub(r"\$\{([\w:]+)\}", lambda found: str(self.values.get(found[1], found[0])), text)
        for name in [name for name, each in members.items() if isinstance(each, str)]:
            text = text.replace(f"${{{name}}}", members.pop(name))
        return {"Fn::Sub": [text, members] if members else text} if "${" in text else text

    def refused(self, rules: dict[str, Any]) -> list[str]:
        """Returns the descriptions of the assertions that fail."""
        asked = [each for each in rules.values() if self.resolved(each["RuleCondition"])]
        return [
            each["AssertDescription"]
            for rule in asked
            for each in rule["Assertions"]
            if not self.resolved(each["Assert"])
        ]

    def made(self, members: dict[str, Any]) -> dict[str, Any]:
        """Returns the resources or outputs whose condition is true."""
        found = {
            name: each for name, each in members.items() if "Condition" not in each or self.truth(each["Condition"])
        }
        return {
            name: self.resolved({k: v for k, v in each.items() if k != "Condition"}) for name, each in found.items()
        }


def expanded(text: str, parameters: dict[str, str]) -> dict[str, Any]:
    template = yaml_parse(text)
    stack = Stack(template, parameters)
    if refused := stack.refused(template.pop("Rules")):
        return {"refused": refused}
    function = template["Resources"]["InferenceFunction"]
    function["Properties"]["CodeUri"] = "s3://artifacts/function.zip"  # as `sam package` does
    made = transform(template, {**stack.values}, Policies())
    stack.conditions = made.get("Conditions", {})
    whole = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": stack.made(made["Resources"])}
    whole["Outputs"] = stack.made(made["Outputs"])
    found = lint(json.dumps(whole), config={"regions": ["us-east-1"]})
    return {
        "refused": [],
        "resources": whole["Resources"],
        "outputs": whole["Outputs"],
        "lint": [f"{each.rule.id} {each.path}: {each.message}" for each in found],
    }


if __name__ == "__main__":
    source = Path(sys.argv[1]).read_text(encoding="utf-8")
    asked = json.load(sys.stdin)
    json.dump({name: expanded(source, parameters) for name, parameters in asked.items()}, sys.stdout)
