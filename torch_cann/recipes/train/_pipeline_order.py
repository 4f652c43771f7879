"""In which order one process runs the forwards and backwards of stages: programs per card, merged into ticks."""

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
    """A backward as soon as possible: at most ``cards - card`` micro-batches are held (Narayanan et al. 2019)."""
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
    return _alternate([action(FORWARD, k) for k in range(total)], [action(BACKWARD, k) for k in range(total)], warm)


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
            if at < len(program) and done.issuperset(_needs(program[at], stages, BACKWARD))
        ]
        if not tick:
            raise AssertionError(f"no card can go on after {merged}")
        for card, (program, at) in enumerate(zip(programs, position, strict=True)):
            if at < len(program) and program[at] in tick:
                position[card] += 1
        merged += tick
        done.update(tick)
    return merged


def _needs(action: Action, stages: int, backward: str) -> list[Action]:
    """What must be done before an action; ``backward`` is the kind that gives the stage before its gradient."""
    kind, stage, m = action
    if kind == FORWARD:
        return [Action(FORWARD, stage - 1, m)] if stage else []
    if kind == WEIGHT_GRADIENT:
        return [Action(INPUT_GRADIENT, stage, m)]
    return [Action(FORWARD, stage, m), *([Action(backward, stage + 1, m)] if stage < stages - 1 else [])]


def _zero_bubble(cards: int, micro_batches: int) -> list[Action]:
    """Gradients of weights fill what would be bubbles; memory as 1F1B's first card (ZB-H1 of Qi et al. 2023).

    A card that is free does the first of these that it can: a gradient of inputs, which others wait for; a forward, if
    it holds few enough micro-batches; a gradient of weights, which nobody waits for. The first stage has no gradient of
    inputs, so its backward is whole. Forwards and halves of backwards are taken to last equally long.
    """
    halves = [(BACKWARD,)] + [(INPUT_GRADIENT, WEIGHT_GRADIENT)] * (cards - 1)
    count = [dict.fromkeys((FORWARD, *kinds), 0) for kinds in halves]
    free, finished, merged = [0] * cards, {}, []

    def choice(card: int, now: int) -> Action | None:
        done = count[card]
        first, last = halves[card][0], halves[card][-1]
        may_start = done[FORWARD] - done[first] < cards - card and done[FORWARD] - done[last] < cards
        # The first card's backward is awaited by nobody, so forwards go before it.
        kinds = (FORWARD, BACKWARD) if card == 0 else (INPUT_GRADIENT, FORWARD, WEIGHT_GRADIENT)
        for kind in kinds:
            action = Action(kind, card, done[kind])
            if action.micro_batch == micro_batches or (kind == FORWARD and not may_start):
                continue
            if all(finished.get(n, now + 1) <= now for n in _needs(action, cards, INPUT_GRADIENT)):
                return action
        return None

    now = 0
    while len(merged) < (3 * cards - 1) * micro_batches:
        for card in range(cards):
            action = choice(card, now) if free[card] <= now else None
            if action is not None:
                count[card][action.kind] += 1
                free[card] = finished[action] = now + (2 if action.kind == BACKWARD else 1)
                merged.append(action)
        now += 1
    return merged
