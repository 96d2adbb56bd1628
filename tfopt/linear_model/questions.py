"""Computations that ask questions as they go on: generators that yield these and are sent answers.

Who answers, and how many such computations at a time, is not their business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

__all__ = ["answered", "answered_together"]

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


def answered(
    asking: Generator[Question, Answer, Result], answer: Callable[[Question], Answer]
) -> Result:
    """Answer all that a computation asks, and return what it comes to."""
    return answered_together({0: asking}, lambda asked: {0: answer(asked[0])})[0]


def answered_together(
    asking: Mapping[int, Generator[Question, Answer, Result]],
    answer: Callable[[dict[int, Question]], dict[int, Any]],
    first: Mapping[int, Any] | None = None,
) -> dict[int, Result]:
    """Answer all that some computations ask: of each the next question at a time.

    Parameters
    ----------
    asking : dict of generator
    answer : callable
        From questions to answers, by the computations' keys.
    first : dict, optional
        Answers to the first questions, where these have been asked already.

    Returns
    -------
    dict
        What each comes to.
    """
    results: dict[int, Result] = {}
    found: dict[int, Any] = dict.fromkeys(asking) if first is None else dict(first)
    while found:
        asked = {}
        for k, one in found.items():
            try:
                asked[k] = asking[k].send(one)
            except StopIteration as end:
                results[k] = end.value
        found = answer(asked) if asked else {}
    return results
