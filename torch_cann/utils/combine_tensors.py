"""Several tensors in one piece of memory, so that one operator can work on all of them."""

import torch

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["get_part_combined_tensor", "is_combined_tensor_valid", "npu_combine_tensors"]


def npu_combine_tensors(
    list_of_tensor: list[torch.Tensor], require_copy_value: bool = True
) -> torch.Tensor | None:
    """Moves the tensors, of one dtype on one npu, into new memory, one after the other; returns all of it, flat.

    The tensors stay the same objects and keep shape and, unless ``require_copy_value`` is False, content. Each becomes
    contiguous. None for an empty list.
    """
    if not list_of_tensor:
        return None
    first = list_of_tensor[0]
    for tensor in list_of_tensor:
        if tensor.device.type != "npu":
            raise RuntimeError(f"expected tensors on npu, but one is on {tensor.device}" + pta_error(ErrCode.PARAM))
        if (tensor.dtype, tensor.device) != (first.dtype, first.device):
            raise RuntimeError(
                f"expected tensors of one dtype on one card, but got {first.dtype} on {first.device} and "
                f"{tensor.dtype} on {tensor.device}" + pta_error(ErrCode.TYPE)
            )
    combined = torch.zeros(sum(t.numel() for t in list_of_tensor), dtype=first.dtype, device=first.device)
    offset = 0
    for tensor in list_of_tensor:
        part = combined[offset : offset + tensor.numel()].view(tensor.shape)
        if require_copy_value:
            part.copy_(tensor.detach())
        tensor.data = part
        offset += tensor.numel()
    return combined


def get_part_combined_tensor(combined_tensor: torch.Tensor | None, index: int, size: int) -> torch.Tensor | None:
    """``size`` elements of a combined tensor from ``index``, the same memory; None when there is no combined tensor."""
    if combined_tensor is None or combined_tensor.numel() == 0 or size == 0:
        return None
    if not 0 <= index <= index + size <= combined_tensor.numel():
        raise RuntimeError(
            f"the part from {index} of {size} elements is not inside the {combined_tensor.numel()} of the combined "
            "tensor" + pta_error(ErrCode.VALUE)
        )
    return combined_tensor.view(-1)[index : index + size]


def is_combined_tensor_valid(combined_tensor: torch.Tensor | None, list_of_tensor: list[torch.Tensor]) -> bool:
    """Whether the tensors still lie in the combined memory, one after the other."""
    if combined_tensor is None:
        return not list_of_tensor
    address = combined_tensor.data_ptr()
    for tensor in list_of_tensor:
        if tensor.data_ptr() != address:
            return False
        address += tensor.numel() * tensor.element_size()
    return address <= combined_tensor.data_ptr() + combined_tensor.numel() * combined_tensor.element_size()
