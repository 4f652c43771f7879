"""What it costs that a step ends with its slowest card."""

from __future__ import annotations

from statistics import NormalDist

# Standard deviation of the speed of cards of one kind, as a share. Sinha et al., "Not All GPUs Are Created Equal" (SC'22,
# arXiv 2208.11035), saw accelerators of one cluster differ by 8 % on average between the whiskers of a box plot, which
# are 5.4 standard deviations of a normal distribution apart. No such figure is published for NPUs.
SPREAD = 0.015


def slowdown(cards: int) -> float:
    """Time of the slowest of ``cards`` over that of the average one; 1 for a single card.

    Collectives and pipelines make all cards of a job wait for the slowest. Its expected place among normally distributed
    ones is Blom's approximation (1958), which is within 5 % from two cards on, 1 % from eight.
    """
    if cards < 2:
        return 1.0
    return 1 + SPREAD * NormalDist().inv_cdf((cards - 0.375) / (cards + 0.25))


def notes(cards: int) -> list[str]:
    """What a report says of it."""
    if cards < 2:
        return []
    return [
        f"{slowdown(cards) - 1:.1%} of the model's time is waiting for the slowest of {cards} cards, if their speeds spread by "
        f"{SPREAD:.1%}."
    ]
