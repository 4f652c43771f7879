"""Matrix products fused with a collective. Here the two run one after the other, with the same result.

The group is named by its communicator, as ``group._get_backend(device).get_hccl_comm_name(rank)`` gives it.
"""

import torch
import torch.distributed as dist

from torch_cann.distributed import _backend

_OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


def _group(hcom: str):
    """The process group whose communicator has this name. Raises ValueError when this process has none."""
    names = []
    for group in dist.distributed_c10d._world.pg_map:
        try:
            backend = _backend._hccl_of(group)
        except RuntimeError:
            continue
        name = backend.get_hccl_comm_name(group.rank(), init_comm=False)
        if name == hcom:
            return group
        names.append(name)
    raise ValueError(f"no process group has a communicator named {hcom!r}; this process has {names}")


def _check(op: str, x, x2, world_size: int | None, group, unsupported: dict) -> None:
    if x.dim() < 2 or x2.dim() != 2 or x.size(-1) != x2.size(0):
        raise RuntimeError(f"{op}: cannot multiply {tuple(x.shape)} by {tuple(x2.shape)}")
    if world_size is not None and group is not None and world_size != group.size():
        raise RuntimeError(f"{op}: world_size is {world_size}, but the group has {group.size()} ranks")
    given = [name for name, value in unsupported.items() if value is not None]
    if given:
        raise NotImplementedError(f"{op}: {', '.join(given)}: quantised operands are not implemented")


def _reduce_op(op: str, name: str):
    if name not in _OPS:
        raise ValueError(f"{op}: reduce_op must be one of {', '.join(_OPS)}, but got {name!r}")
    return _OPS[name]


def _product(x, x2, bias):
    y = torch.matmul(x, x2)
    return y if bias is None else y + bias


def _all_gather_base_mm(
    input,
    x2,
    hcom,
    world_size,
    *,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    gather_index=0,
    gather_output=True,
    comm_turn=0,
    output_dtype=None,
    comm_mode=None,
):
    op = "npu_all_gather_base_mm"
    group = _group(hcom)
    _check(op, input, x2, world_size, group, {"x1_scale": x1_scale, "x2_scale": x2_scale})
    if gather_index != 0:
        raise NotImplementedError(f"{op}: gather_index must be 0, as on hardware, but got {gather_index}")
    gathered = input.new_empty((input.size(0) * world_size, *input.shape[1:]))
    dist.all_gather_into_tensor(gathered, input.contiguous(), group=group)
    y = _product(gathered, x2, bias)
    y = y if output_dtype is None else y.to(output_dtype)
    return y, gathered if gather_output else input.new_empty(0)


def _all_gather_base_mm_shape(
    input, x2, hcom, world_size, *, gather_output=True, output_dtype=None, **_
):
    rows = input.size(0) * world_size
    gathered = input.new_empty((rows, *input.shape[1:])) if gather_output else input.new_empty(0)
    return input.new_empty((rows, x2.size(1)), dtype=output_dtype or input.dtype), gathered


def _mm_reduce_scatter_base(
    input,
    x2,
    hcom,
    world_size,
    *,
    reduce_op="sum",
    bias=None,
    x1_scale=None,
    x2_scale=None,
    comm_turn=0,
    output_dtype=None,
    comm_mode=None,
):
    op = "npu_mm_reduce_scatter_base"
    group = _group(hcom)
    _check(op, input, x2, world_size, group, {"x1_scale": x1_scale, "x2_scale": x2_scale})
    if input.size(0) % world_size:
        raise RuntimeError(f"{op}: the {input.size(0)} rows of input must divide among {world_size} ranks")
    y = _product(input, x2, bias)
    out = y.new_empty((y.size(0) // world_size, y.size(1)))
    dist.reduce_scatter_tensor(out, y, op=_reduce_op(op, reduce_op), group=group)
    return out if output_dtype is None else out.to(output_dtype)


def _mm_reduce_scatter_base_shape(input, x2, hcom, world_size, *, output_dtype=None, **_):
    return input.new_empty((input.size(0) // world_size, x2.size(1)), dtype=output_dtype or input.dtype)


def _mm_all_reduce_base(x1, x2, hcom, *, reduce_op="sum", bias=None, x3=None, **quantised):
    op = "npu_mm_all_reduce_base"
    group = _group(hcom)
    names = ("antiquant_scale", "antiquant_offset", "dequant_scale", "pertoken_scale", "comm_quant_scale_1")
    _check(op, x1, x2, None, group, {name: quantised.get(name) for name in names})
    y = _product(x1, x2, bias)
    if x3 is not None:
        y = y + x3  # each rank's part, added before the sum over ranks
    dist.all_reduce(y, op=_reduce_op(op, reduce_op), group=group)
    return y


def _mm_all_reduce_base_shape(x1, x2, hcom, **_):
    return x1.new_empty((*x1.shape[:-1], x2.size(1)))


# Name: (schema behind the name, kernel, shape function).
_OPERATORS = {
    "npu_all_gather_base_mm": (
        "(Tensor input, Tensor x2, str hcom, int world_size, *, Tensor? bias=None, Tensor? x1_scale=None, Tensor? "
        "x2_scale=None, int gather_index=0, bool gather_output=True, int comm_turn=0, ScalarType? output_dtype=None, "
        "str? comm_mode=None) -> (Tensor, Tensor)",
        _all_gather_base_mm,
        _all_gather_base_mm_shape,
    ),
    "npu_mm_reduce_scatter_base": (
        "(Tensor input, Tensor x2, str hcom, int world_size, *, str reduce_op='sum', Tensor? bias=None, Tensor? "
        "x1_scale=None, Tensor? x2_scale=None, int comm_turn=0, ScalarType? output_dtype=None, str? comm_mode=None) "
        "-> Tensor",
        _mm_reduce_scatter_base,
        _mm_reduce_scatter_base_shape,
    ),
    "npu_mm_all_reduce_base": (
        "(Tensor x1, Tensor x2, str hcom, *, str reduce_op='sum', Tensor? bias=None, Tensor? antiquant_scale=None, "
        "Tensor? antiquant_offset=None, Tensor? x3=None, Tensor? dequant_scale=None, Tensor? pertoken_scale=None, "
        "Tensor? comm_quant_scale_1=None, Tensor? comm_quant_scale_2=None, int antiquant_group_size=0, int "
        "comm_turn=0, int[]? group_sizes=None, int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? "
        "dequant_scale_dtype=None, int? pertoken_scale_dtype=None, int comm_quant_mode=0, str? comm_mode=None) -> "
        "Tensor",
        _mm_all_reduce_base,
        _mm_all_reduce_base_shape,
    ),
}

_library = None  # keeps the registrations alive


def register() -> None:
    global _library
    _library = torch.library.Library("npu", "FRAGMENT")
    for name, (schema, kernel, shape) in _OPERATORS.items():
        _library.define(name + schema)
        _library.impl(name, kernel, "PrivateUse1")
        _library.impl(name, shape, "Meta")
