"""core.explain.shapley, against the package shap, closed forms, and the properties that define Shapley values."""

import importlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import binom

from core.explain import shapley
from core.explain.shapley import Attribution, coalitions, least_budget, shapley_values

Function = Callable[[NDArray[Any]], NDArray[Any]]


@pytest.fixture(scope="module")
def shap() -> Any:
    """Returns the package without numba's compiler, which would take seconds for our few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        return importlib.import_module("shap")


def attribute(
    function: Function, example: Any, background: Any, budget: int = 2048, seed: int = 0, rows: int = 100
) -> Attribution:
    """Returns the attribution of one example in one block."""
    plan = cache(partial(coalitions, budget=budget, seed=seed))
    found = shapley_values(lambda b, _: function(b[0]), [np.asarray([example])], [np.asarray(background)], plan, rows)
    return Attribution(*(each[0] for each in found))


def curved(x: NDArray[Any]) -> NDArray[Any]:
    """Returns two outputs with interactions of all orders."""
    first, last = x[:, 0], x[:, -1]
    return np.stack([np.sin(first) * last + np.tanh(x).prod(1) + np.abs(x).max(1), np.exp(-(x**2).mean(1)) * 3], 1)


def data(features: int, rows: int = 7) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns three examples and a background."""
    rng = np.random.default_rng(features)
    return rng.normal(size=(3, features)), rng.normal(size=(rows, features))


@pytest.mark.parametrize("features", [1, 2, 3, 6])
def test_few_features_score_as_in_the_definition(features: int) -> None:
    """A score is the mean, over all orders in which features may join, of what the feature adds."""
    examples, background = data(features)
    for example in examples:
        expected = np.zeros((features, 2))
        orders = list(permutations(range(features)))
        for order in orders:
            mixed = background.copy()
            before = curved(mixed).mean(0)
            for feature in order:
                mixed[:, feature] = example[feature]
                after = curved(mixed).mean(0)
                expected[feature] += (after - before) / len(orders)
                before = after
        found = attribute(curved, example, background)
        np.testing.assert_allclose(found.scores, expected, atol=1e-12)
        np.testing.assert_allclose(found.base, curved(background).mean(0))
        np.testing.assert_allclose(found.prediction, curved(example[None])[0])


def test_few_features_score_as_shaps_exact_explainer_says(shap: Any) -> None:
    """Its masker `Independent` is the same background."""
    examples, background = data(5)
    expected = shap.ExactExplainer(curved, shap.maskers.Independent(background))(examples)
    for index, example in enumerate(examples):
        found = attribute(curved, example, background)
        np.testing.assert_allclose(found.scores, expected.values[index], atol=1e-12)
        np.testing.assert_allclose(found.base, expected.base_values[index])


@pytest.mark.parametrize("features", [4, 9])
def test_few_features_score_as_shaps_kernel_explainer_says(shap: Any, features: int) -> None:
    """It is exact, too, when its samples are all coalitions."""
    examples, background = data(features)
    explainer = shap.KernelExplainer(curved, background)
    expected = explainer.shap_values(examples, nsamples=2**features, l1_reg=False, silent=True)
    for index, example in enumerate(examples):
        np.testing.assert_allclose(attribute(curved, example, background).scores, expected[index], atol=1e-9)


@pytest.mark.parametrize(("features", "budget"), [(13, 600), (16, 2048), (40, 2048)])
def test_many_features_are_sampled_as_well_as_by_shaps_kernel_explainer(shap: Any, features: int, budget: int) -> None:
    """With the same budget, the error against closed-form values is at most half as large again as shap's."""
    rng = np.random.default_rng(1)
    pairs = rng.normal(size=(features, features)) / features

    def quadratic(x: NDArray[Any]) -> NDArray[Any]:
        value: NDArray[Any] = np.einsum("ni,ij,nj->n", x, pairs, x)[:, None] + x.sum(1, keepdims=True)
        return value

    example, background = rng.normal(size=features), rng.normal(size=(1, features))
    delta, both = example - background[0], pairs + pairs.T
    exact = delta * (1 + both @ background[0]) + delta * (pairs @ delta + pairs.T @ delta) / 2
    np.random.seed(0)  # noqa: NPY002 - shap draws from it
    theirs = shap.KernelExplainer(quadratic, background).shap_values(
        example[None], nsamples=budget, l1_reg=False, silent=True
    )[0, :, 0]
    ours = attribute(quadratic, example, background, budget).scores[:, 0]
    assert np.abs(ours - exact).mean() <= 1.5 * np.abs(theirs - exact).mean() + 1e-9


@pytest.mark.parametrize("features", [3, 12, 60])
def test_a_linear_function_scores_its_weights_times_what_differs_from_the_mean(features: int) -> None:
    """The rule holds however few coalitions are evaluated."""
    examples, background = data(features)
    weights = np.arange(features) - 2.0
    for example in examples:
        found = attribute(lambda x: (x @ weights + 5)[:, None], example, background, least_budget(features))
        np.testing.assert_allclose(found.scores[:, 0], weights * (example - background.mean(0)), atol=1e-9)


@pytest.mark.parametrize("players", [3, 4, 5, 8, 9])
def test_regression_on_all_coalitions_is_the_definition(players: int) -> None:
    """KernelSHAP's weights make both equal."""
    every = coalitions(players, 2**players, 0)
    sizes = every.members.sum(1)
    regressed = shapley._regressed(every.members, 1 / (binom(players, sizes) * sizes * (players - sizes)))
    np.testing.assert_allclose(regressed.operator, every.operator / every.scale, atol=1e-9)
    np.testing.assert_allclose(regressed.everybody, every.everybody / every.scale)


@pytest.mark.parametrize(
    ("budget", "whole"), [(18, [1, 7]), (19, [1, 7]), (20, [1, 7]), (150, [1, 2, 6, 7]), (255, [1, 2, 3, 5, 6, 7])]
)
def test_sizes_are_taken_whole_while_drawing_would_give_each_coalition_a_draw(budget: int, whole: list[int]) -> None:
    """They come from both ends, and always include single players and complements: eighteen determine eight scores."""
    found = np.bincount(coalitions(8, budget, 0).members.sum(1), minlength=8)
    assert [size for size in range(1, 8) if found[size] == binom(8, size)] == whole


budgets = st.integers(3, 40).flatmap(lambda p: st.tuples(st.just(p), st.integers(least_budget(p), 400)))


@given(budgets, st.integers(0, 2**32))
def test_coalitions_keep_to_the_budget_and_share_out_everything(sizes: tuple[int, int], seed: int) -> None:
    """Each is different and evaluated once. Whatever their values are, the scores sum to the value of all players."""
    players, budget = sizes
    chosen = coalitions(players, budget, seed)
    assert len(chosen.members) <= budget - 2
    assert len({bytes(members) for members in chosen.members}) == len(chosen.members)
    assert chosen.members.any(1).all()
    assert not chosen.members.all(1).any()
    np.testing.assert_allclose(chosen.operator.sum(0), 0, atol=1e-9)
    np.testing.assert_allclose(chosen.everybody.sum(), chosen.scale)


@given(budgets)
def test_coalitions_come_with_their_complements(sizes: tuple[int, int]) -> None:
    """Complements cancel the error of all interactions of two."""
    members = coalitions(*sizes, 0).members
    assert {bytes(m) for m in members} == {bytes(m) for m in ~members}


@given(st.integers(1, 14), st.integers(0, 1000), st.sampled_from([32, 200, 2048]))
def test_scores_and_base_sum_to_the_prediction(features: int, seed: int, budget: int) -> None:
    """The property is called efficiency; it holds for exact and sampled scores."""
    rng = np.random.default_rng(seed)
    found = attribute(curved, rng.normal(size=features), rng.normal(size=(4, features)), budget, seed)
    np.testing.assert_allclose(found.base + found.scores.sum(0), found.prediction, atol=1e-9)


@pytest.mark.parametrize("features", [4, 14])
def test_a_feature_that_changes_nothing_scores_nothing(features: int) -> None:
    """The function ignores it, or the background has no other value."""
    (example, *_), background = data(features)
    looked = attribute(lambda x: curved(x[:, 1:]), example, background)
    if features == 4:
        np.testing.assert_allclose(looked.scores[0], 0, atol=1e-12)
    background[:, 2] = example[2]
    assert attribute(curved, example, background).scores[2].tolist() == [0, 0]


def test_equal_features_score_alike() -> None:
    """The property is called symmetry: a function treats two features alike and gets equal values of both."""
    (example, *_), background = data(5)
    example[1], background[:, 1] = example[3], background[:, 3]
    scores = attribute(lambda x: (x[:, 1] * x[:, 3] * x[:, 0] + x[:, [2]].T).T, example, background).scores
    np.testing.assert_allclose(scores[1], scores[3], atol=1e-12)


def test_an_example_of_the_backgrounds_values_scores_nothing_without_being_asked_for() -> None:
    """Such an example has no players. NaN stands for a missing value on both sides."""
    asked: list[int] = []

    def count(x: NDArray[Any]) -> NDArray[Any]:
        asked.append(len(x))
        return np.nan_to_num(x).sum(1, keepdims=True)

    found = attribute(count, [1.0, np.nan], [[1.0, np.nan]] * 3)
    assert found.scores.tolist() == [[0], [0]]
    assert asked == [4]
    assert attribute(count, [1.0, np.nan], [[1.0, 4.0]]).scores.tolist() == [[0], [-4]]


def test_the_same_seed_gives_the_same_scores() -> None:
    """Another seed gives other scores if coalitions are drawn."""
    (example, *_), background = data(20)
    first, again, other = (attribute(curved, example, background, 200, seed).scores for seed in (7, 7, 8))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize(("rows", "largest"), [(1, 7), (20, 14), (10_000, 7 * 62)])
def test_rows_asked_for_at_once_are_bounded(rows: int, largest: int) -> None:
    """A batch has whole coalitions, at least one; how they are cut does not change any score."""
    (example, *_), background = data(6)
    sizes: list[int] = []

    def watched(x: NDArray[Any]) -> NDArray[Any]:
        sizes.append(len(x))
        return curved(x)

    found = attribute(watched, example, background, rows=rows)
    assert max(sizes[1:]) == largest
    np.testing.assert_allclose(found.scores, attribute(curved, example, background).scores, atol=1e-12)


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=6), st.integers(1, 9))
def test_short_numbers_have_exact_scores(weights: list[int], rows: int) -> None:
    """They are 2.0 and 0.0, not 1.9999999999999998 and -5.5e-17, if the true score is a double itself."""
    background = np.zeros((rows, 6))
    found = attribute(lambda x: (x @ np.array(weights) / 8)[:, None], np.ones(6), background)
    assert found.scores[:, 0].tolist() == [weight / 8 for weight in weights]


def test_blocks_keep_their_types() -> None:
    """Integers beyond the precision of doubles reach the function unchanged, and an empty block does no harm."""
    seen: list[Sequence[NDArray[Any]]] = []

    def predict(blocks: Sequence[NDArray[Any]], _: Any) -> NDArray[np.float64]:
        seen.append(blocks)
        return (blocks[0] == 2**63 - 1).astype(np.float64) + blocks[1]

    example = [np.array([[2**63 - 1]]), np.array([[0.5]], np.float32), np.zeros((1, 0), bool)]
    background = [np.array([[1], [2]]), np.zeros((2, 1), np.float32), np.zeros((2, 0), bool)]
    plan = partial(coalitions, budget=4, seed=0)
    assert shapley_values(predict, example, background, plan, 100).scores[0].tolist() == [[1], [0.5]]
    assert {tuple(block.dtype.char for block in blocks) for blocks in seen} == {("l", "f", "?")}
