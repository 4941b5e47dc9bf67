"""What the pages claim about the code exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATH = re.compile(r"`((?:rust|python|tests|docs|benches|examples|\.ci)/[\w./-]+\.\w+)`")
SYMBOL = re.compile(r"`([A-Za-z_]\w*(?:(?:::|\.)\w+)*)`")


def tour_steps() -> list[tuple[str, list[str]]]:
    """(file, symbols) of each numbered step of the tour."""
    text = (ROOT / "docs/tour.md").read_text()
    steps = []
    for step in re.findall(r"^\d+\. (.*)$", text, re.M):
        file, rest = step.split(":", 1)
        steps.append((file.strip("`"), SYMBOL.findall(rest)))
    return steps


def test_the_tour_is_short() -> None:
    assert 5 <= len(tour_steps()) <= 9


@pytest.mark.parametrize(("file", "symbols"), tour_steps(), ids=lambda value: str(value)[:60])
def test_every_file_and_symbol_of_the_tour_exists(file: str, symbols: list[str]) -> None:
    source = (ROOT / file).read_text()
    assert symbols
    for symbol in symbols:
        # Statuses and flags are written in several files; what a step names is in its own file.
        last = re.split(r"::|\.", symbol)[-1]
        assert re.search(rf"\b{re.escape(last)}\b", source), f"{symbol} is not in {file}"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "ARCHITECTURE.md",
        "FORMAT.md",
        "CONTRIBUTING.md",
        "docs/tour.md",
        "docs/torch.md",
    ],
)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "FORMAT.md", "docs/tour.md", "docs/torch.md"]
)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    here = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", here.read_text())
    missing = [link for link in links if not (here.parent / link).exists()]
    assert not missing


def test_every_invariant_that_the_code_cites_is_documented() -> None:
    documented = set(re.findall(r"INV-\d+", (ROOT / "FORMAT.md").read_text()))
    for source in (ROOT / "rust").rglob("*.rs"):
        if "target" in source.parts:
            continue
        unknown = set(re.findall(r"INV-\d+", source.read_text())) - documented
        assert not unknown, f"{source}: {unknown}"
