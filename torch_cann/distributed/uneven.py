"""Collectives on one tensor whose parts, along dimension 0, have different sizes."""

import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    ReduceScatterOptions,
    _rank_not_in_group,
    _warn_not_in_group,
)

from torch_cann.distributed import _backend
from torch_cann.utils._error_code import ErrCode, dist_error


def _run(group, async_op: bool, launch):
    if _rank_not_in_group(group):
        _warn_not_in_group(launch.__name__)
        return None
    work = launch(_backend._hccl_of(group or dist.group.WORLD))
    if async_op:
        return work
    work.wait()
    return None


def all_gather_into_tensor_uneven(output, input, output_split_sizes=None, group=None, async_op=False):
    """Gathers `input` of all ranks into `output`, rank r's part having output_split_sizes[r] rows.

    Args:
        output: contiguous npu tensor of sum(output_split_sizes) rows.
        input: this rank's rows.
        output_split_sizes: rows of each rank; None for equal parts.
        group: the process group; the default one if None.
        async_op: True gives a work handle instead of waiting.
    """
    options = AllgatherOptions()
    options.asyncOp = async_op

    def all_gather(backend):
        return backend.all_gather_into_tensor_uneven(output, input, list(output_split_sizes or []), options)

    return _run(group, async_op, all_gather)


def reduce_scatter_tensor_uneven(
    output, input, input_split_sizes=None, op=dist.ReduceOp.SUM, group=None, async_op=False
):
    """Reduces `input` over all ranks and leaves rank r its input_split_sizes[r] rows in `output`.

    Args:
        output: contiguous npu tensor for this rank's rows.
        input: contiguous npu tensor of sum(input_split_sizes) rows.
        input_split_sizes: rows of each rank; None for equal parts.
        op: as in torch.distributed.reduce_scatter_tensor.
        group: the process group; the default one if None.
        async_op: True gives a work handle instead of waiting.
    """
    options = ReduceScatterOptions()
    options.reduceOp = op
    options.asyncOp = async_op

    def reduce_scatter(backend):
        return backend.reduce_scatter_tensor_uneven(output, input, list(input_split_sizes or []), options)

    return _run(group, async_op, reduce_scatter)


def all_to_all_vc(output, input, send_count_matrix, group=None, async_op=False):
    """all_to_all_single() whose sizes all ranks know: rank i sends send_count_matrix[i][j] rows to rank j.

    Args:
        output, input: npu tensors of as many rows as this rank receives and sends.
        send_count_matrix: a list with a list for each rank, the same on all ranks.
    """
    group = group or dist.group.WORLD
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if len(send_count_matrix) != size or any(len(row) != size for row in send_count_matrix):
        raise ValueError(
            f"send_count_matrix must have {size} rows and columns, one for each rank of the group"
            + dist_error(ErrCode.PARAM)
        )
    received = [row[rank] for row in send_count_matrix]
    return dist.all_to_all_single(output, input, received, list(send_count_matrix[rank]), group, async_op)
