"""core.dialects.v1.parse_errors: RapidJSON's words for the standard library's errors."""

import pytest

from core.dialects.v1.parse_errors import parse_error
from core.encoding import jsonio


@pytest.mark.parametrize(("body", "told"), [
    (" ", "The document is empty"),
    ('{"a": [1.0,]}', "Invalid value. at offset: 11"),
    ('{"a": Nan}', "Invalid value. at offset: 6"),
    ('{"a": .5}', "Invalid value. at offset: 6"),
    ("nonsense", "Invalid value. at offset: 0"),
    ('{"a": 1,}', "Missing a name for object member. at offset: "),
    ("{a: 1}", "Missing a name for object member. at offset: 1"),
    ('{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
    ('{"[": 1 "b": 2}', "Missing a comma or } after an object member. at offset: 8"),
    ('{"a": [1, {}, []], "b": {"c": 5 6}}', "Missing a comma or } after an object member. at offset: 32"),
    ('{"a": [1.0', "Missing a comma or ] after an array element. at offset: 10"),
    ('{"a": [{"b": "]"}, [1] 2]}', "Missing a comma or ] after an array element. at offset: 23"),
    ("[01]", "Missing a comma or ] after an array element. at offset: 2"),
    ("[1.]", "Miss fraction part in number. at offset: 2"),
    ("[1e]", "Miss exponent in number. at offset: 2"),
    ("[1E+]", "Miss exponent in number. at offset: 2"),
    ('["\n"]', "Invalid encoding in string. at offset: 2"),
    ('["\\x"]', "Invalid escape character in string. at offset: 2"),
    ('["\\u12x4"]', "Incorrect hex digit after \\u escape in string. at offset: "),
    ('["a]', "Missing a closing quotation mark in string. at offset: 1"),
    ("{} {}", "The document root must not be followed by other values. at offset: 3"),
    ('{"a": [Inf, 1 2]}', "Missing a comma or ] after an array element. at offset: 14"),
    ('{"Inf": "Inf", "a": [-NaN, -Inf, Inf] "b": 1}', "Missing a comma or } after an object member. at offset: 38"),
    ("[Inf, -NaN] 1", "The document root must not be followed by other values. at offset: 12"),
    ("[-NaN, Inf, 1e400]", "Number too big to be stored in double. at offset: 12"),
    ("[Inf, x]", "Invalid value. at offset: 6"),
    ("[x, Inf]", "Invalid value. at offset: 1"),
    ('{"x": "1e400", "a": [-1e400]}', "Number too big to be stored in double. at offset: 21"),
])  # fmt: skip
def test_a_text_that_is_not_json_is_refused_in_rapidjsons_words(body: str, told: str) -> None:
    """With the place."""
    with pytest.raises(jsonio.NotJson) as refusal:
        jsonio.loads_lists(body.encode())
    found = parse_error(body.encode(), refusal.value)
    assert found.startswith(f"JSON Parse error: {told}")
    assert found[len(f"JSON Parse error: {told}") :].isdecimal() == told.endswith(": ")
