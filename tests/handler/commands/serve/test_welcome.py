"""handler.commands.serve.welcome: the commands to try."""

import shlex
from urllib.parse import unquote

import pytest

from handler.commands.serve import welcome
from handler.settings import Settings

URL = "http://127.0.0.1:8080"


@pytest.mark.parametrize("name", ["iris", "a b", "a;touch b", "$(touch b)", "<i>&'\"", "é"])
def test_a_models_name_is_one_word_of_a_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody copies the commands, and whoever writes to the repository has chosen the name."""
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "models"})
    welcome.say(welcome.Glance((name,), ""), settings, URL, "", None)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (infer,) = (shlex.split(line) for line in lines if " infer " in line)
    assert infer[infer.index("infer") + 1 :] == [name, "--sample"]
    (curl,) = (line for line in lines if line.startswith(f"curl {URL}/v2/models/"))
    assert len(shlex.split(curl)) == 2
    assert not set(curl) & set("$;<>&'\"()")
    assert unquote(curl.rsplit("/", 1)[1]) == name


def test_the_commands_have_a_place_for_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    """Where clients need one. Without the site, nobody is sent to it."""
    settings = Settings.from_env({"DRAGOMAN_AUTH": "keys", "DRAGOMAN_SITE": "false"})
    welcome.say(welcome.Glance(("m",), ""), settings, URL, "", None)
    out = capsys.readouterr().out
    assert f"  curl -H 'Authorization: Bearer KEY' {URL}/v2/models/m\n" in out
    assert "infer m --sample --key KEY\n" in out
    assert "Status page" not in out
