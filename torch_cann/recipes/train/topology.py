"""Orders and groups collectives by the link they use: between the cards of a node, or between nodes."""

import torch
import torch.distributed as dist


class TopologyAwareScheduler:
    """Orders and groups collectives by link. Without an initialised process group the world is one rank.

    Args:
        intra_node_priority: True: of the collectives that wait, those inside a node start first, and reductions over
            several nodes go in two levels (inside the nodes, along the rails between them, inside the nodes).
            False: the order of submission, and flat collectives.
        overlap_factor: share of a step's gradient bytes, 0 to 1, that may be sent while backward still computes; the
            rest is sent when backward is over.
        ranks_per_node: cards of a node; default LOCAL_WORLD_SIZE, else all ranks are on one node.
        process_group: the ranks; default all.
    """

    def __init__(
        self,
        intra_node_priority: bool = True,
        overlap_factor: float = 0.8,
        *,
        ranks_per_node: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        raise NotImplementedError("TopologyAwareScheduler is being written")
