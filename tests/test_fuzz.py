"""A few random scenarios against the rules of `make fuzz`, and mutants that are still where they were."""

from __future__ import annotations

import pytest

from fuzz.cases import outcome
from mutants.__main__ import PAGE, ROOT, read_list, with_list


@pytest.mark.engine
@pytest.mark.parametrize("number", [*range(40), 1104, 1537, 1726])
def test_rules_hold(number: int) -> None:
    """Number 1537 has a slow host, whose messages come later and so let others of the same NIC go first."""
    assert [str(violation) for violation in outcome(number).violations] == []


def test_mutants_stand_where_the_list_says() -> None:
    gone = [m.name for m in read_list() if (ROOT / m.file).read_text(encoding="utf-8").count(m.find) != 1]
    assert gone == []


def test_mutants_are_listed_in_the_docs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_list(page, read_list()) == page, "`make mutants MUTANTS=--write` renews the list"
