"""Shapley values over numpy: what each feature of an example adds to a function's value.

A coalition is a set of features that take the example's values while the others keep those of a background; its value
is the mean prediction over the background's rows. These are the interventional Shapley values of Lundberg and Lee, "A
Unified Approach to Interpreting Model Predictions" (2017), which the package `shap` calculates with its ExactExplainer
and, where the coalitions are too many, its KernelExplainer.

Either way the scores are linear in the coalitions' values, so one matrix holds the whole method.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb, lcm
from typing import Any, Final

import numpy as np

from core.dtype import NDArray
from core.records import NamedTuple

DRAWS: Final = 4
"""The most draws per wanted pair of coalitions: when few are left, most draws repeat earlier ones."""

Blocks = Sequence[NDArray[Any]]
"""Columns of rows: each [rows, features] in a type of its own."""
Predict = Callable[[Blocks, NDArray[np.intp]], NDArray[np.float64]]
"""Blocks, and the number of the example that each row belongs to, [rows] -> predictions, [rows, outputs]."""


class Coalitions(NamedTuple):
    """The coalitions to evaluate, between the empty one and the full one.

    scores = (operator @ (their values - empty's) + outer(everybody, full's value - empty's)) / scale
    """

    members: NDArray[np.bool_]
    """[coalitions, players]"""
    operator: NDArray[np.float64]
    """[players, coalitions]"""
    everybody: NDArray[np.float64]
    """[players]"""
    scale: float = 1.0
    """Makes the other two whole numbers if all coalitions count: short values then yield exact scores."""


class Attribution(NamedTuple):
    """base + scores.sum(1) = prediction."""

    scores: NDArray[np.float64]
    """[examples, features, outputs]"""
    base: NDArray[np.float64]
    """[examples, outputs]: the mean prediction over the background"""
    prediction: NDArray[np.float64]
    """[examples, outputs]"""


def least_budget(features: int) -> int:
    """Returns the number of coalitions that always determine the scores.

    They are each feature alone, all features but each, no feature, and all features.
    """
    return 2 * features + 2


def shapley_values(
    predict: Predict, examples: Blocks, background: Blocks, plan: Callable[[int], Coalitions], rows: int
) -> Attribution:
    """Returns the scores of all examples.

    `examples` and `background` are blocks of the same types. `plan` returns the coalitions of a number of players. A
    feature that equals the background's in every row is not a player and scores 0. Examples with the same players are
    worked on together: short ones would cost more by the call than by their predictions. `predict` gets at most `rows`
    rows at once, or as many as the background has, and one more, if those are more.
    """
    count = len(background[0])
    with np.errstate(over="ignore", invalid="ignore"):
        nobody, prediction = _ends(predict, examples, background, max(1, rows // (count + 1)))
        differs = np.concatenate([_differs(*both) for both in zip(examples, background, strict=True)], axis=1)
        scores = np.zeros((*differs.shape, nobody.shape[1]))
        players, owners = np.unique(differs, axis=0, return_inverse=True)
        for index, present in enumerate(players):
            if present.any():
                chosen, own = plan(int(present.sum())), np.flatnonzero(owners.reshape(-1) == index)
                taken = np.zeros((len(chosen.members), len(present)), bool)
                taken[:, present] = chosen.members
                others = _sums(predict, (examples, background), taken, own, rows) - nobody[own, None]
                everybody = prediction[own] * count - nobody[own]
                gains = chosen.operator @ others + chosen.everybody[:, None] * everybody[:, None]
                scores[np.ix_(own, present)] = gains / (count * chosen.scale)
        return Attribution(scores, nobody / count, prediction)


def _ends(predict: Predict, examples: Blocks, background: Blocks, step: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the predictions of no feature, summed over the background's rows, and of all: [examples, outputs]."""
    count, found = len(background[0]), []
    for start in range(0, len(examples[0]), step):
        some = [block[start : start + step] for block in examples]
        own = np.arange(start, start + len(some[0]))
        blocks = [np.concatenate((np.tile(b, (len(own), 1)), e)) for e, b in zip(some, background, strict=True)]
        ends = predict(blocks, np.concatenate((np.repeat(own, count), own)))
        nobody = ends[: -len(own)].reshape(len(own), count, -1).sum(1)
        found.append((nobody, ends[-len(own) :]))
    nobodies, predictions = zip(*found, strict=True)
    return np.concatenate(nobodies), np.concatenate(predictions)


def _differs(examples: NDArray[Any], background: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns which features differ from the background, [examples, features].

    NaN stands for a missing value and equals NaN.
    """
    found = np.zeros(examples.shape, bool)
    missing = examples != examples  # noqa: PLR0124 - NaN alone differs from itself
    for row in background:
        found |= (examples != row) & ~(missing & (row != row))  # noqa: PLR0124 - the same
    return found


def _sums(
    predict: Predict, both: tuple[Blocks, Blocks], taken: NDArray[np.bool_], own: NDArray[np.intp], rows: int
) -> NDArray[np.float64]:
    """Returns predictions summed over the background's rows, [own examples, coalitions, outputs].

    `both`: the examples and the background. `taken`: [coalitions, features]. One player has no coalitions but those of
    nobody and everybody.
    """
    examples, background = both
    count, found = len(background[0]), [np.zeros((len(own), 0, 1))]
    step = max(1, rows // count)
    for at in range(0, len(taken), step):
        places = list(_places(examples, taken[at : at + step], count))
        size = min(step, len(taken) - at) * count
        together = max(1, rows // size)
        sums = []
        for start in range(0, len(own), together):
            some = own[start : start + together]
            mixed = [_mixed(*each, some, size) for each in zip(examples, background, places, strict=True)]
            predictions = predict(mixed, np.repeat(some, size))
            sums.append(predictions.reshape(len(some), size // count, count, -1).sum(2))
        found.append(np.concatenate(sums))
    return np.concatenate(found[1:] or found, axis=1)


def _places(examples: Blocks, taken: NDArray[np.bool_], count: int) -> Iterator[NDArray[np.intp]]:
    """Yields, for each block, where the elements of all mixed rows are in the background with the example behind it."""
    start = 0
    for block in examples:
        features = block.shape[1]
        rows = np.arange(count * features).reshape(count, features)
        yield np.where(taken[:, None, start : start + features], count * features + np.arange(features), rows).reshape(
            -1
        )
        start += features


def _mixed(
    block: NDArray[Any], background: NDArray[Any], places: NDArray[np.intp], own: NDArray[np.intp], size: int
) -> NDArray[Any]:
    """Returns a block's rows, [examples x coalitions x background's rows, features], in this order.

    `size`: the rows of an example.
    """
    both = np.concatenate((np.tile(background.reshape(1, -1), (len(own), 1)), block[own]), axis=1)
    return both.take(places, axis=1).reshape(len(own) * size, block.shape[1])


def coalitions(players: int, budget: int, seed: int) -> Coalitions:
    """Returns every coalition if the budget holds them, else a choice that depends on the arguments alone.

    `players` > 0. `budget` counts the empty and the full coalition; it is at least `least_budget(players)`, unless it
    holds them all.
    """
    if 2**players <= budget:
        return _every(players)
    return _regressed(*_choice(players, budget - 2, np.random.default_rng(seed)))


def _every(players: int) -> Coalitions:
    """Returns all coalitions, by the definition: a player's gain for each coalition of the others, weighted by size."""
    members = (np.arange(1, 2**players - 1)[:, None] >> np.arange(players)) % 2 == 1
    orders = [comb(players - 1, size) for size in range(players)]
    weights = np.array([lcm(*orders) // number for number in orders], np.float64)
    sizes = members.sum(1)[:, None]
    operator = np.where(members, weights[sizes - 1], -weights[sizes])
    everybody = np.full(players, weights[-1])
    return Coalitions(members, np.ascontiguousarray(operator.T), everybody, float(players * lcm(*orders)))


def _choice(players: int, budget: int, rng: "np.random.Generator") -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Returns KernelSHAP's coalitions and weights.

    The smallest and largest sizes are taken whole, the rest is drawn in complementary pairs. A size is taken whole if
    each of its coalitions would be drawn once or more. Single players are always taken whole, because with them and
    their complements the regression has one solution.
    """
    sizes = np.arange(1, players // 2 + 1)
    sides = np.where(2 * sizes == players, 1, 2)  # a size stands for its complements' size, too
    mass = sides / (sizes * (players - sizes))
    whole, weights = [_whole(players, 1)], [np.full(2 * players, mass[0] / (2 * players))]
    budget -= 2 * players
    at = 1
    while at < len(sizes) and (count := comb(players, at + 1) * int(sides[at])) <= budget * mass[at] / mass[at:].sum():
        whole.append(_whole(players, at + 1))
        weights.append(np.full(count, mass[at] / count))
        budget -= count
        at += 1
    if at < len(sizes) and budget > 1:
        drawn, counts = _drawn(players, budget // 2, rng, sizes[at:], mass[at:] / mass[at:].sum())
        whole += [drawn, ~drawn]
        weights += [counts / counts.sum() * mass[at:].sum() / 2] * 2
    return np.concatenate(whole), np.concatenate(weights)


def _whole(players: int, size: int) -> NDArray[np.bool_]:
    """Returns all coalitions of that size, and their complements."""
    chosen = np.array(list(combinations(range(players), size)))
    members = np.zeros((len(chosen), players), bool)
    np.put_along_axis(members, chosen, values=True, axis=1)
    return members if 2 * size == players else np.concatenate((members, ~members))


def _drawn(
    players: int, pairs: int, rng: "np.random.Generator", sizes: NDArray[Any], chances: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Draws at most `pairs` different coalitions, no two of them complements. Returns them and their counts."""
    counts: dict[bytes, int] = {}
    for size in rng.choice(sizes, DRAWS * pairs, p=chances):
        members = np.zeros(players, bool)
        members[rng.permutation(players)[:size]] = True
        if 2 * size == players and not members[0]:
            members = ~members  # if both complements have one size, the one with the first player stands for both
        drawn = members.tobytes()
        counts[drawn] = counts.get(drawn, 0) + 1
        if len(counts) == pairs:
            break
    found = np.frombuffer(b"".join(counts), bool).reshape(-1, players)
    return found, np.array(list(counts.values()), np.float64)


def _regressed(members: NDArray[np.bool_], weights: NDArray[np.float64]) -> Coalitions:
    """Solves KernelSHAP's equation 8: weighted least squares, with scores that sum to the full coalition's value.

    A Lagrange multiplier shares out, by `everybody`, the part of that sum which the free solution lacks.
    """
    taken = members.astype(np.float64)
    weighted = taken.T * weights
    inverse = np.linalg.inv(weighted @ taken)
    free = inverse @ weighted
    everybody = inverse.sum(1) / inverse.sum()
    return Coalitions(members, free - np.outer(everybody, free.sum(0)), everybody)
