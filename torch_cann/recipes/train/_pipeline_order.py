"""In which order one process runs the forwards and backwards of stages: programs per card, merged into ticks."""

from collections.abc import Callable
from typing import NamedTuple

FORWARD, BACKWARD = "F", "B"
INPUT_GRADIENT, WEIGHT_GRADIENT = "I", "W"  # the two halves of a backward, which zero-bubble schedules separately

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")


class Action(NamedTuple):
    kind: str
    stage: int
    micro_batch: int


def order(schedule: str, cards: int, chunks: int, micro_batches: int) -> list[Action]:
    """All actions, such that each comes after those it needs and each card does what the schedule says.

    Stage ``c * cards + d`` is chunk ``c`` of card ``d``. Kernels are queued on the cards in this order, so cards work
    at the same time wherever the schedule lets them.
    """
    if schedule == "zero-bubble":
        return _zero_bubble(cards, micro_batches)
    program = {"gpipe": _gpipe, "1f1b": _one_f_one_b, "interleaved": _interleaved}[schedule]
    return _merge([program(card, cards, chunks, micro_batches) for card in range(cards)], cards * chunks)


def _gpipe(card: int, cards: int, chunks: int, micro_batches: int) -> list[Action]:
    """All forwards, then all backwards (Huang et al. 2019)."""
    return [Action(kind, card, m) for kind in (FORWARD, BACKWARD) for m in range(micro_batches)]


def _one_f_one_b(card: int, cards: int, chunks: int, micro_batches: int) -> list[Action]:
    """A backward as soon as possible, so that at most ``cards - card`` micro-batches are held (Narayanan et al. 2019)."""
    warm = min(micro_batches, cards - 1 - card)
    forwards = [Action(FORWARD, card, m) for m in range(micro_batches)]
    backwards = [Action(BACKWARD, card, m) for m in range(micro_batches)]
    return _alternate(forwards, backwards, warm)


def _interleaved(card: int, cards: int, chunks: int, micro_batches: int) -> list[Action]:
    """1F1B over several chunks per card, which divides the bubble by their number (Narayanan et al. 2021)."""
    total = micro_batches * chunks

    def action(kind: str, k: int) -> Action:
        chunk = k // cards % chunks
        chunk = chunk if kind == FORWARD else chunks - 1 - chunk
        return Action(kind, chunk * cards + card, k // (cards * chunks) * cards + k % cards)

    warm = min(total, 2 * (cards - 1 - card) + (chunks - 1) * cards)
    return _alternate(
        [action(FORWARD, k) for k in range(total)], [action(BACKWARD, k) for k in range(total)], warm
    )


def _alternate(forwards: list[Action], backwards: list[Action], warm: int) -> list[Action]:
    steady = [action for pair in zip(forwards[warm:], backwards, strict=False) for action in pair]
    return forwards[:warm] + steady + backwards[len(forwards) - warm :]


def _merge(programs: list[list[Action]], stages: int) -> list[Action]:
    """Tick by tick the next action of every card that has what it needs."""
    merged: list[Action] = []
    done: set[Action] = set()
    position = [0] * len(programs)
    while len(merged) < sum(map(len, programs)):
        tick = [
            program[at]
            for program, at in zip(programs, position, strict=True)
            if at < len(program) and _ready(program[at], done, stages, BACKWARD)
        ]
        if not tick:
            raise AssertionError(f"no card can go on after {merged}")
        for card, (program, at) in enumerate(zip(programs, position, strict=True)):
            if at < len(program) and program[at] in tick:
                position[card] += 1
        merged += tick
        done.update(tick)
    return merged


def _ready(action: Action, done: set[Action], stages: int, backward: str) -> bool:
    kind, stage, m = action
    if kind == FORWARD:
        return stage == 0 or Action(FORWARD, stage - 1, m) in done
    if kind == WEIGHT_GRADIENT:
        return Action(INPUT_GRADIENT, stage, m) in done
    if Action(FORWARD, stage, m) not in done:
        return False
    return stage == stages - 1 or Action(backward, stage + 1, m) in done


def _zero_bubble(cards: int, micro_batches: int) -> list[Action]:
    """Gradients of weights fill what would be bubbles; memory as 1F1B's first card (ZB-H1 of Qi et al. 2023).

    Each tick every card does the first of these that it can: a gradient of inputs, which others wait for; a forward, if
    it holds few enough micro-batches; a gradient of weights, which nobody waits for.
    """
    done: set[Action] = set()
    count = {kind: [0] * cards for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)}
    merged: list[Action] = []

    def choices(card: int) -> list[tuple[str, Callable[[], bool]]]:
        started, back, freed = (count[kind][card] for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT))
        return [
            (INPUT_GRADIENT, lambda: back < started),
            (FORWARD, lambda: started - back < cards - card and started - freed < cards),
            (WEIGHT_GRADIENT, lambda: freed < back),
        ]

    while len(merged) < 3 * cards * micro_batches:
        tick = []
        for card in range(cards):
            for kind, allowed in choices(card):
                action = Action(kind, card, count[kind][card])
                if action.micro_batch < micro_batches and allowed():
                    if _ready(action, done, cards, INPUT_GRADIENT):
                        tick.append(action)
                        break
        for action in tick:
            count[action.kind][action.stage] += 1
        done.update(tick)
        merged += tick
    return merged
