"""schemathesis sends models what their typed operations allow and what these forbid."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from tests.protocols.openapi.test_answers import CONFIG
from tests.support.openapi import ask, serving

MODELS = ("flowers", "half_plus_three", "iris", "numbers", "passengers", "species", "strings")
app = serving()
for name in MODELS:  # only models in memory have typed operations
    ask(app, f"/v2/models/{name}", method="GET").raise_for_status()
api = schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(CONFIG))


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_of_a_model_is_as_described(model: str, mode: GenerationMode, data: st.DataObject) -> None:
    """Wrong names, datatypes and ranks are refused; whatever else comes, the answer has its described form."""
    operation = api[f"/v2/models/{model}/infer"]["POST"]
    data.draw(operation.as_strategy(generation_mode=mode)).call_and_validate()
