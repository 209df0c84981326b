"""If-Match and If-None-Match, as HTTP has them."""

from __future__ import annotations

import pytest

from api.preconditions import parse_if_match, wants_absence
from api.problems import ProblemError

MATCHES: dict[str, tuple[str, bool]] = {
    "the revision": ('"3"', True),
    "another": ('"2"', False),
    "any": ("*", True),
    "one of several": ('"1", "3"', True),
    "none of several": ('"1", "2"', False),
    "a weak tag never matches": ('W/"3"', False),
    "no revision": ('"abc"', False),
    "digits of another script": ('"٣"', False),
    "without quotes": ("3", True),
    "an absurd number": (f'"{"9" * 50}"', False),
}


@pytest.mark.parametrize(("header", "wanted"), MATCHES.values(), ids=MATCHES.keys())
def test_if_match_against_revision_3(header: str, wanted: bool) -> None:
    condition = parse_if_match(header)
    assert condition is not None
    if wanted:
        condition.check(3)
    else:
        with pytest.raises(ProblemError) as refused:
            condition.check(3)
        assert refused.value.kind.status == 412


@pytest.mark.parametrize("header", ["three", '"3', '"3",,', ""])
def test_headers_that_are_none(header: str) -> None:
    with pytest.raises(ProblemError) as refused:
        parse_if_match(header)
    assert refused.value.kind.status == 422


def test_if_none_match_knows_only_the_star() -> None:
    assert wants_absence(None) is False
    assert wants_absence(" * ") is True
    with pytest.raises(ProblemError):
        wants_absence('"3"')
