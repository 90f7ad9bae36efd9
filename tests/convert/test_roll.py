"""How many models of how many libraries the tests of this folder convert, serve and refuse."""

from tests.convert.roll import REFUSED, SERVED


def test_thirty_models_of_seven_libraries_are_served_and_five_refused() -> None:
    """The modules take their models by these names; tests/convert/libraries compares its own with them."""
    assert len(SERVED) == 7
    assert sum(len(set(names)) for names in SERVED.values()) >= 30
    assert sum(len(set(names)) for names in REFUSED.values()) >= 5
