"""`dragoman completion`: a script by which a shell completes commands, flags and values, made from the parsers."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

INSTALL: Final = {
    "bash": "~/.local/share/bash-completion/completions/dragoman",
    "zsh": "a folder of your fpath, as _dragoman",
    "fish": "~/.config/fish/completions/dragoman.fish",
}
"""Where each shell looks for such a script."""
LONGEST: Final = 80
"""The most characters of a description in a list of flags."""


class Word(NamedTuple):
    """A flag. `takes`: it has a value. `values`: the ones that are known."""

    flags: tuple[str, ...]
    about: str
    takes: bool
    values: tuple[str, ...]


def add(commands: Any) -> None:
    places = "; ".join(f"{shell}: {place}" for shell, place in INSTALL.items())
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands and flags in a shell",
        description=f"Print a script that completes commands and flags. Write it where the shell looks. {places}",
    )
    completion.add_argument("shell", choices=[*INSTALL])
    completion.set_defaults(parsers=commands)


def run(options: argparse.Namespace) -> None:
    """Prints the script for one shell. `options.parsers`: has the parsers of all commands."""
    about = {each.dest: each.help or "" for each in options.parsers._choices_actions}  # noqa: SLF001 - argparse has them nowhere else
    commands = {name: (about.get(name, ""), [*_words(parser)]) for name, parser in options.parsers.choices.items()}
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    print("\n".join(write(commands)))  # noqa: T201 - the result


Commands = dict[str, tuple[str, list[Word]]]


def _words(parser: argparse.ArgumentParser) -> Iterator[Word]:
    """Yields a command's flags, those of its own commands, too, and first what it takes without a flag."""
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action.choices, dict):
            yield Word((), "", takes=True, values=tuple(action.choices))
            for each in action.choices.values():
                yield from (word for word in _words(each) if "--help" not in word.flags)
            continue
        values = tuple(map(str, action.choices or ()))
        if not values and isinstance(action.metavar, str) and "|" in action.metavar and "@" not in action.metavar:
            values = tuple(action.metavar.split("|"))
        takes = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
        if action.option_strings or (values and values[0].islower()):
            about = (getattr(action, "full", None) or action.help or "").replace("%%", "%")
            yield Word(tuple(action.option_strings), about[:LONGEST], takes, values)


def _flat(words: Iterable[Word]) -> str:
    return " ".join(flag for word in words for flag in word.flags)


def _bash(commands: Commands) -> Iterator[str]:
    yield "_dragoman() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"'
    yield "  COMPREPLY=()"
    yield f'  local words="{" ".join(commands)} --help --version" values=""'
    yield '  if [ "$COMP_CWORD" -gt 1 ]; then'
    yield '    case "$command" in'
    for name, (_, words) in commands.items():
        bare = " ".join(value for word in words if not word.flags for value in word.values)
        yield f'      {name}) words="{" ".join(filter(None, (bare, _flat(words))))}";;'
    yield '      *) words="";;'
    yield "    esac"
    yield '    case "$command $before" in'
    for name, (_, words) in commands.items():
        for word in words:
            if word.flags and word.takes:
                places = "|".join(f'"{name} {flag}"' for flag in word.flags)
                yield f'      {places}) words=""; values="{" ".join(word.values)}";;'
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words $values" -- "$word"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _dragoman dragoman"


def _zsh(commands: Commands) -> Iterator[str]:
    yield "#compdef dragoman"
    yield "_dragoman() {"
    yield "  local -a commands=("
    for name, (about, _) in commands.items():
        yield f"    {_quoted(f'{name}:{about}')}"
    yield "  )"
    yield "  if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield '  case "$words[2]" in'
    for name, (_, words) in commands.items():
        yield f"    {name}) shift words; (( CURRENT-- )); _arguments \\"
        for word in words:
            values = f":value:({' '.join(word.values)})" if word.values else ":value:_files"
            for flag in word.flags:
                about = word.about.replace("[", "(").replace("]", ")").replace(":", "\\:")
                yield f"      {_quoted(f'*{flag}[{about}]{values if word.takes else str()}')} \\"
        bare = " ".join(value for word in words if not word.flags for value in word.values)
        yield f"      {_quoted(f'*:argument:({bare})' if bare else '*:file:_files')};;"
    yield "  esac"
    yield "}"
    yield "compdef _dragoman dragoman"


def _fish(commands: Commands) -> Iterator[str]:
    for name, (about, words) in commands.items():
        yield f"complete -c dragoman -n __fish_use_subcommand -f -a {name} -d {_quoted(about, fish=True)}"
        inside = f"complete -c dragoman -n '__fish_seen_subcommand_from {name}'"
        for word in words:
            known = _quoted(" ".join(word.values), fish=True)
            values = f" -x -a {known}" if word.values else " -r" if word.takes else ""
            if not word.flags:
                yield f"{inside} -f -a {known}"
            for flag in word.flags:
                form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                yield f"{inside} {form}{values} -d {_quoted(word.about, fish=True)}"


def _quoted(text: str, *, fish: bool = False) -> str:
    """Returns a text as one word of a shell."""
    text = " ".join(text.split())
    if fish:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "'\\''") + "'"
