"""Options of torch.distributed.rpc for npu tensors, which it does not carry."""

from torch_cann._refused import refused

globals().update(refused(__name__))
