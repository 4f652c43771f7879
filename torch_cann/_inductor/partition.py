"""What the backward pass gets from the forward pass: as little as costs no products to compute again.

PyTorch's partitioner keeps a result that is cheap to compute again wherever the backward pass would have to store it
anyway, as the input of a product is: that spares a loop, on processors whose memory is fast. Here a loop costs little
beside the products, and HBM is what runs out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files

Graphs = tuple[torch.fx.GraphModule, torch.fx.GraphModule]


def _is_of_npu(module: torch.fx.GraphModule) -> bool:
    values = (node.meta.get("val") for node in module.graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type == "npu" for value in values)


# Not ``aggressive_recomputation``, which also leaves the list of operators that may be computed again: the device's
# random numbers would be drawn twice, and differ.
_RECOMPUTE = {"ban_recompute_materialized_backward": False}


class NPUPartitioner(CustomPartitionerFn):
    """PyTorch's partitioner, with _RECOMPUTE for graphs of npu; a memory budget that was set goes on from there."""

    def __call__(self, module: torch.fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Graphs:
        """Forward and backward graph of a joint graph; the arguments are the partitioner's own."""
        with config.patch(_RECOMPUTE if _is_of_npu(module) else {}):
            return min_cut_rematerialization_partition(module, joint_inputs, **kwargs)

    def uuid(self) -> bytes:
        return get_hash_for_files((str(Path(__file__)),))
