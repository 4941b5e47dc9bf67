"""What all commands have in common."""

import pytest
from conftest import Cli
from kvstore.cli.commands import COMMANDS


def test_without_a_command_the_help_lists_them(cli: Cli) -> None:
    ended = cli()
    assert ended.status == 0
    assert all(f"\n  {name} " in ended.out for name in COMMANDS)


def test_a_wrong_command_is_refused_with_the_right_ones(cli: Cli) -> None:
    ended = cli("simulate")
    assert ended.status == 2
    assert "invalid choice: 'simulate'" in ended.err
    assert "'sim'" in ended.err


def test_the_version_is_the_distribution_s(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out.strip() == version("kvstore-engine")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_and_takes_json(cli: Cli, name: str) -> None:
    ended = cli(name, "--help")
    assert ended.status == 0
    assert f"usage: kvstore {name}" in ended.out
    assert "--json" in ended.out
