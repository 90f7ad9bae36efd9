"""Requests for every operation of the published description, which test_answers has made in a process of its own.

Making them takes ten seconds while tests are collected, which every process of a run would spend.
"""

from schemathesis import Case

from tests.protocols.openapi.test_answers import _samples, api

__all__ = ["_samples"]  # the fixture, which holds for this module, too


@api().parametrize()
def test_every_answer_is_as_described(case: Case) -> None:
    """The test covers statuses, headers, media types and bodies, for valid and invalid requests and wrong methods."""
    case.call_and_validate()
