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
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

DRAWS: Final = 4
"""The most draws per wanted pair of coalitions: when few are left, most draws repeat earlier ones."""

Predict = Callable[[Sequence[NDArray[Any]]], NDArray[np.float64]]
"""Blocks of columns, each [rows, features] in a type of its own -> predictions, [rows, outputs]."""


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
    """base + scores.sum(0) = prediction."""

    scores: NDArray[np.float64]
    """[features, outputs]"""
    base: NDArray[np.float64]
    """[outputs]: the mean prediction over the background"""
    prediction: NDArray[np.float64]
    """[outputs]"""


def least_budget(features: int) -> int:
    """Returns the number of coalitions that always determine the scores.

    They are each feature alone, all features but each, no feature, and all features.
    """
    return 2 * features + 2


def shapley_values(
    predict: Predict,
    example: Sequence[NDArray[Any]],
    background: Sequence[NDArray[Any]],
    plan: Callable[[int], Coalitions],
    rows: int,
) -> Attribution:
    """Returns one example's scores.

    `example` is blocks [features]; `background` is blocks [rows, features] of the same types. `plan` returns the
    coalitions of a number of players. A feature that equals the background's in every row is not a player and scores 0.
    `predict` gets at most `rows` rows at once, or as many as the background has, if those are more.
    """
    count = len(background[0])
    with np.errstate(over="ignore", invalid="ignore"):
        ends = predict([np.concatenate((b, e[None])) for e, b in zip(example, background, strict=True)])
        nobody, prediction = ends[:-1].sum(0), ends[-1]
        differs = np.concatenate([_differs(e, b) for e, b in zip(example, background, strict=True)])
        scores = np.zeros((len(differs), len(nobody)))
        if differs.any():
            chosen = plan(int(differs.sum()))
            taken = np.zeros((len(chosen.members), len(differs)), bool)
            taken[:, differs] = chosen.members
            step = max(1, rows // count)
            starts = range(0, len(taken), step)
            sums = [_sums(predict, example, background, taken[start : start + step]) for start in starts]
            others = np.concatenate([nobody[None], *sums])[1:] - nobody  # one player has no others
            gains = chosen.operator @ others + np.outer(chosen.everybody, prediction * count - nobody)
            scores[differs] = gains / (count * chosen.scale)
        return Attribution(scores, nobody / count, prediction)


def _differs(example: NDArray[Any], background: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns which features differ from the background, [features]. NaN stands for a missing value and equals NaN."""
    both_missing = (example != example) & (background != background)  # noqa: PLR0124 - NaN alone differs from itself
    differs: NDArray[np.bool_] = ((example != background) & ~both_missing).any(0)
    return differs


def _sums(
    predict: Predict, example: Sequence[NDArray[Any]], background: Sequence[NDArray[Any]], taken: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Returns predictions summed over the background's rows, [coalitions, outputs]. `taken`: [coalitions, features]."""
    predictions = predict(list(_mixed(example, background, taken)))
    sums: NDArray[np.float64] = predictions.reshape(len(taken), len(background[0]), -1).sum(1)
    return sums


def _mixed(
    example: Sequence[NDArray[Any]], background: Sequence[NDArray[Any]], taken: NDArray[np.bool_]
) -> Iterator[NDArray[Any]]:
    """Yields each block's rows, [coalitions x background's rows, features], coalition by coalition."""
    start = 0
    for block, rows in zip(example, background, strict=True):
        end = start + len(block)
        yield np.where(taken[:, None, start:end], block, rows).reshape(len(taken) * len(rows), len(block))
        start = end


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
