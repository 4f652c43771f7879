"""Splits a model into a chain of stages: traced by torch.fx around its blocks, which stay the modules they are."""

import inspect
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from typing import Any

import torch
from torch import fx, nn


def split_model(model: nn.Module, stages: int, split: Sequence[str] | Sequence[int] | None) -> list[fx.GraphModule]:
    """Stages that take and return tuples of values, the last what the model returns.

    A stage's modules and Parameters are those of the model, under the same names. Arguments of ``forward`` that have a
    default keep it. What ``forward`` of the modules above the blocks decides when it is traced stays decided.

    Args:
        model: what to split.
        stages: how many.
        split: see PipelineParallel.

    Raises:
        TypeError: the model cannot be traced.
        ValueError: it has fewer blocks than stages, or ``split`` does not fit.
    """
    graph = _trace(model)
    blocks = [node for node in graph.nodes if node.op == "call_module"]
    if len(blocks) < stages:
        raise ValueError(
            f"the model calls {len(blocks)} blocks ({', '.join(node.target for node in blocks)}), too few for {stages} "
            "stages: use fewer stages, or give a list of modules"
        )
    begins = _begins(model, blocks, stages, split)
    stage_of: dict[fx.Node, int] = {}
    current = 0
    for node in graph.nodes:
        if current + 1 < stages and node is blocks[begins[current]]:
            current += 1
        stage_of[node] = 0 if node.op == "placeholder" else stages - 1 if node.op == "output" else current
    return [_stage(model, graph, stage_of, stage, stages) for stage in range(stages)]


class _Tracer(fx.Tracer):
    """Traces through the modules above the blocks only."""

    def __init__(self, above: set[nn.Module]):
        super().__init__()
        self._above = above

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        return module not in self._above


def _above_blocks(model: nn.Module) -> set[nn.Module]:
    """The model, its Sequentials and ModuleLists, and modules that contain a ModuleList, down to ModuleLists' elements.

    A list is how models hold their repeated blocks, so what is inside its elements belongs to a block.
    """
    above: set[nn.Module] = set()

    def visit(module: nn.Module, is_root: bool) -> None:
        has_list = any(isinstance(inner, nn.ModuleList) for inner in module.modules())
        if not (is_root or has_list or isinstance(module, nn.Sequential)):
            return
        above.add(module)
        if not isinstance(module, nn.ModuleList):
            for child in module.children():
                visit(child, False)

    visit(model, True)
    return above


def _trace(model: nn.Module) -> fx.Graph:
    parameters = inspect.signature(model.forward).parameters.values()
    fixed = {p.name: p.default for p in parameters if p.default is not p.empty}
    inputs = {p.name for p in parameters if p.default is p.empty}
    try:
        graph = _Tracer(_above_blocks(model)).trace(model, concrete_args=fixed or None)
    except Exception as error:
        raise TypeError(
            f"{type(model).__name__} cannot be split, because torch.fx cannot trace its forward() around its blocks "
            f"({error}): give a list of modules, each of which takes what the one before returns"
        ) from error
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        if node.target not in inputs and (not node.users or not node.target.startswith("*")):
            _erase(graph, node)
    return graph


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Removes a fixed argument and the comparisons with its default that fx makes of it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _cost(module: nn.Module) -> int:
    """Weights that every token or sample is multiplied with, a measure of time; an embedding only looks up."""
    return 1 + sum(
        parameter.numel()
        for inner in module.modules()
        if not isinstance(inner, nn.Embedding | nn.EmbeddingBag)
        for parameter in inner.parameters(recurse=False)
    )


def _begins(
    model: nn.Module, blocks: list[fx.Node], stages: int, split: Sequence[str] | Sequence[int] | None
) -> list[int]:
    """Which block each stage after the first begins with."""
    names = [node.target for node in blocks]
    if split is None:
        return _even([_cost(model.get_submodule(name)) for name in names], stages)
    split = list(split)
    if all(isinstance(item, int) and not isinstance(item, bool) for item in split):
        if len(split) != stages or sum(split) != len(names) or min(split) < 1:
            raise ValueError(
                f"split={split} must be {stages} numbers of blocks, each at least 1, that add up to the model's "
                f"{len(names)} blocks: {', '.join(names)}"
            )
        return [sum(split[: i + 1]) for i in range(stages - 1)]
    unknown = [item for item in split if item not in names]
    if unknown or len(split) != stages - 1:
        raise ValueError(
            f"split={split} must name the block that each of the {stages - 1} stages after the first begins with, out "
            f"of {', '.join(names)}"
        )
    begins = [names.index(item) for item in split]
    if sorted(set(begins)) != begins or begins[0] == 0:
        raise ValueError(f"split={split} must be in the order in which the blocks run, after the first: {names}")
    return begins


def _even(costs: list[int], stages: int) -> list[int]:
    """The contiguous partition whose most costly stage costs least; of such ones the most even one."""
    least, _ = _partition(costs, stages, max)
    _, begins = _partition(costs, stages, lambda before, own: before + own**2 if own <= least else inf)
    return begins


def _partition(costs: list[int], stages: int, join: Callable[[float, int], float]) -> tuple[float, list[int]]:
    """The contiguous partition of least total, and where its stages after the first begin.

    ``join(total of the stages before, cost of the next one)`` is the total with it; of equal ones the latest cuts win.
    """
    sums = [0, *accumulate(costs)]
    best = [join(0, cost) for cost in sums]  # the least total of the stages so far over the first n blocks
    cuts: list[list[int]] = []
    for stage in range(1, stages):
        row, cut = [inf] * len(sums), [0] * len(sums)
        for n in range(stage + 1, len(sums)):
            row[n], cut[n] = min((join(best[k], sums[n] - sums[k]), -k) for k in range(stage, n))
        best = row
        cuts.append([-k for k in cut])
    begins, n = [], len(costs)
    for cut in reversed(cuts):
        n = cut[n]
        begins.append(n)
    return best[-1], begins[::-1]


def _stage(model: nn.Module, graph: fx.Graph, stage_of: dict[fx.Node, int], stage: int, stages: int) -> fx.GraphModule:
    """One stage: its own nodes, what earlier stages hand on as inputs, what later ones need as outputs."""

    def crossing(border: int) -> list[fx.Node]:
        """Values made before stage ``border`` that it or a later one uses; a weight is fetched where it is used."""
        return [
            node
            for node in graph.nodes
            if node.op not in ("get_attr", "output")
            and stage_of[node] < border
            and any(stage_of[user] >= border for user in node.users)
        ]

    part = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "placeholder"] if stage == 0 else crossing(stage):
        made[node] = part.placeholder(node.name)

    def mapped(node: fx.Node) -> fx.Node:
        if node not in made and node.op == "get_attr":
            made[node] = part.node_copy(node)
        return made[node]

    for node in graph.nodes:
        if node.op == "output" and stage == stages - 1:
            part.output(fx.map_arg(node.args[0], mapped))
        elif node.op not in ("placeholder", "output", "get_attr") and stage_of[node] == stage:
            made[node] = part.node_copy(node, mapped)
    if stage < stages - 1:
        part.output(tuple(mapped(node) for node in crossing(stage + 1)))
    return fx.GraphModule(model, part, f"{type(model).__name__}Stage{stage}")


def as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def named_tensors(stage: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a stage by name, shared ones under each of their names."""
    return dict(stage.named_parameters(remove_duplicate=False)) | dict(stage.named_buffers(remove_duplicate=False))
