"""handler.settings: the environment's variables, their defaults, and what is wrong with them."""

from pathlib import Path

import pytest

from handler.settings import SETTINGS, InvalidSettings, Settings, platform
from handler.settings.platform import MB_PER_VCPU, cgroup_cpus, cgroup_memory, cgroups


def test_without_any_variable_every_setting_has_its_default() -> None:
    """A first start does not need any configuration."""
    settings = Settings.from_env({})
    assert settings.repository == "models"
    assert settings.preload == ()
    assert settings.threads >= 1
    assert settings.cache == Path("/tmp/dragoman")  # noqa: S108 - the default
    assert settings.platform == "server"
    others = {"cpus", "initialization", "cache_is_default", "contract"}
    assert {setting.field for setting in SETTINGS} == set(Settings._fields) - others


@pytest.mark.parametrize(("variable", "text", "field", "value"), [
    ("DRAGOMAN_PRELOAD", " a, b,,a ", "preload", ("a", "b")),
    ("DRAGOMAN_ALLOW_CODE", "TRUE", "allow_code", True),
    ("DRAGOMAN_ALLOW_CODE", "off", "allow_code", False),
    ("DRAGOMAN_ALLOW_CODE", "", "allow_code", False),
    ("DRAGOMAN_BASE_PATH", "api/", "base_path", "/api"),
    ("DRAGOMAN_BASE_PATH", "/", "base_path", ""),
    ("DRAGOMAN_LOG_LEVEL", "debug", "log_level", "DEBUG"),
    ("DRAGOMAN_THREADS", "3", "threads", 3),
    ("DRAGOMAN_CACHE", "/c", "cache", Path("/c")),
    ("TMPDIR", "/t", "cache", Path("/t/dragoman")),
    ("DRAGOMAN_MEMORY_LIMIT", "0", "memory_limit", None),
    ("DRAGOMAN_MEMORY_LIMIT", "123456789", "memory_limit", 123456789),
    ("DRAGOMAN_MEMORY_LIMIT", "900MB", "memory_limit", 900_000_000),
    ("DRAGOMAN_MEMORY_LIMIT", "1.5 GiB", "memory_limit", 3 * 2**29),
    ("DRAGOMAN_MEMORY_LIMIT", "2GB", "memory_limit", 2 * 10**9),
    ("DRAGOMAN_MEMORY_LIMIT", "64MiB", "memory_limit", 2**26),
    ("DRAGOMAN_REPOSITORY_POLL", "0", "repository_poll", 0.0),
    ("DRAGOMAN_REPOSITORY_POLL", "0.5", "repository_poll", 0.5),
])  # fmt: skip
def test_a_variable_sets_its_setting(variable: str, text: str, field: str, value: object) -> None:
    """The values are written as people write them."""
    assert getattr(Settings.from_env({variable: text}), field) == value


@pytest.mark.parametrize(("variable", "text", "expected"), [
    ("DRAGOMAN_ALLOW_CODE", "maybe", "true or false"),
    ("DRAGOMAN_THREADS", "0", "a whole number above 0"),
    ("DRAGOMAN_THREADS", "1025", "a whole number above 0, at most 1024"),
    ("DRAGOMAN_THREADS", "1_0", "a whole number above 0"),
    ("DRAGOMAN_THREADS", "\N{ARABIC-INDIC DIGIT FOUR}", "a whole number above 0"),
    ("DRAGOMAN_PATIENCE", "1_0", "seconds above 0"),
    ("DRAGOMAN_QUEUE", "-1", "a whole number above 0"),
    ("DRAGOMAN_MAX_BODY_BYTES", "64MB", "a whole number above 0"),
    ("DRAGOMAN_NON_FINITE", "string", "one of token, null, error"),
    ("DRAGOMAN_V1_DIALECT", "TFS", "one of auto, tfs, kserve"),
    ("DRAGOMAN_LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
    ("DRAGOMAN_S3_ADDRESSING", "x", "one of auto, path, virtual"),
    ("DRAGOMAN_MEMORY_LIMIT", "much", "a number of bytes, or of MB, GB, MiB, GiB; 0 for no limit"),
    ("DRAGOMAN_MEMORY_LIMIT", "-1", "a number of bytes"),
    ("DRAGOMAN_MEMORY_LIMIT", "1kB", "a number of bytes"),
    ("DRAGOMAN_REPOSITORY_POLL", "-1", "a number of seconds, 0 for never"),
    ("DRAGOMAN_REPOSITORY_POLL", "nan", "a number of seconds"),
])  # fmt: skip
def test_a_wrong_value_is_named_with_what_was_expected(variable: str, text: str, expected: str) -> None:
    """The error comes at start, not at the first request."""
    with pytest.raises(InvalidSettings, match=f"{variable} is '{text}'; expected {expected}"):
        Settings.from_env({variable: text})


def test_a_variable_that_does_not_exist_is_a_typing_error() -> None:
    """It would otherwise be ignored silently."""
    with pytest.raises(InvalidSettings, match=r"unknown setting DRAGOMAN_PRELAOD; did you mean DRAGOMAN_PRELOAD\?"):
        Settings.from_env({"DRAGOMAN_PRELAOD": "x"})


def test_what_kubernetes_sets_for_a_service_is_not_a_typing_error() -> None:
    """A service dragoman-metrics in its namespace kept the server from starting.

    Source: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
    """
    link = {"DRAGOMAN_METRICS_PORT": "tcp://10.0.0.11:8080", "DRAGOMAN_METRICS_PORT_8080_TCP_ADDR": "10.0.0.11"}
    more = {"DRAGOMAN_METRICS_SERVICE_HOST": "10.0.0.11", "DRAGOMAN_DEFAULT_PORT": "udp://10.0.0.12:1"}
    assert Settings.from_env(link | more) == Settings.from_env({})
    with pytest.raises(InvalidSettings, match="unknown setting DRAGOMAN_METRICS_PORT"):
        Settings.from_env({"DRAGOMAN_METRICS_PORT": "9000"})


def test_lambda_gives_cpus_by_memory() -> None:
    """1769 MB correspond to one."""
    settings = Settings.from_env({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "3538"})
    assert (settings.cpus, settings.platform) == (2.0, "lambda")
    assert Settings.from_env({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128"}).cpus == 128 / MB_PER_VCPU


@pytest.mark.parametrize(
    ("text", "cpus"), [("50000 100000\n", 0.5), ("max 100000\n", float("inf")), (None, float("inf"))]
)
def test_a_containers_quota_counts(tmp_path: Path, text: str | None, cpus: float) -> None:
    """It is Linux's cgroup v2, as Docker and Kubernetes set it."""
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(text)
    assert cgroup_cpus(file) == cpus


@pytest.mark.parametrize(
    ("membership", "levels"),
    [
        ("4:memory:/x\n0::/system.slice/d.service\n", ["system.slice/d.service", "system.slice", ""]),
        ("0::/../../up\n", ["up", ""]),
        ("0::/\n", [""]),
        (None, [""]),
    ],
)
def test_a_service_is_below_the_groups_around_it(tmp_path: Path, membership: str | None, levels: list[str]) -> None:
    """As systemd starts it; a container sees its own group as the root."""
    file, root = tmp_path / "cgroup", tmp_path / "root"
    if membership is not None:
        file.write_text(membership)
    assert cgroups(file, root) == [root / level for level in levels]


def test_the_least_limit_of_all_groups_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of the group around a service is one of the service."""
    levels = [tmp_path / "inner", tmp_path / "around", tmp_path]
    for level, cpu, memory in zip(levels, ("9 10", "5 10", "max 9"), ("3000000", "2000000", "max"), strict=True):
        level.mkdir(exist_ok=True)
        (level / "cpu.max").write_text(cpu)
        (level / "memory.max").write_text(memory)
    monkeypatch.setattr(platform, "cgroups", lambda: levels)
    settings = Settings.from_env({})
    assert (settings.cpus, settings.threads, settings.memory_limit) == (0.5, 1, 1_800_000)


def test_the_memory_limit_leaves_a_tenth_of_what_lambda_or_a_container_gives(tmp_path: Path) -> None:
    """A setting can change it; without any limit there is none."""
    lambda_gives = {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1000"}
    assert Settings.from_env(lambda_gives).memory_limit == int(1000 * 2**20 * 0.9)
    assert Settings.from_env({**lambda_gives, "DRAGOMAN_MEMORY_LIMIT": "0"}).memory_limit is None
    file = tmp_path / "memory.max"
    assert cgroup_memory(file) is None
    for text, limit in (("1000000\n", 900_000), ("max\n", None)):
        file.write_text(text)
        assert cgroup_memory(file) == limit
