"""torch_npu.op_plugin: where torch_npu keeps its operators. All of ours are registered by ``import torch_npu``."""


def _register_atb_extensions() -> None:
    """Registers the operators of torch.ops.atb that there are, which are there already."""
