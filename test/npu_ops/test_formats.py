"""Storage formats as metadata with the sizes of hardware, and operators on a tensor's memory."""

import pytest
import torch
import torch_npu

Format = torch_npu.Format


@pytest.mark.parametrize(
    ("sizes", "dtype", "format", "elements"),
    [
        ((2, 3), torch.float16, Format.FRACTAL_NZ, 16 * 16),
        ((5, 17, 33), torch.float16, Format.FRACTAL_NZ, 5 * 32 * 48),
        ((17, 33), torch.int8, Format.FRACTAL_NZ, 32 * 64),
        ((2, 3, 4, 5), torch.float16, Format.NC1HWC0, 2 * 1 * 4 * 5 * 16),
        ((20, 17, 3, 3), torch.float32, Format.FRACTAL_Z, 2 * 9 * 32 * 16),
        ((2, 17, 3, 4, 5), torch.float16, Format.NDC1HWC0, 2 * 3 * 2 * 4 * 5 * 16),
        ((2, 17, 3, 4, 5), torch.float16, Format.FRACTAL_Z_3D, 3 * 2 * 4 * 5 * 16 * 16),
        ((2, 3, 4, 5), torch.float32, Format.ND, 120),
    ],
)
def test_storage_has_the_size_of_the_format(sizes, dtype, format, elements):
    x = torch.ones(sizes, device="npu", dtype=dtype)
    y = torch_npu.npu_format_cast(x, format)
    assert torch_npu.get_npu_format(y) == format
    assert torch_npu.get_storage_size(y) == elements
    assert y.untyped_storage().nbytes() == elements * dtype.itemsize
    assert torch.equal(y, x) and y.is_contiguous()
    empty = torch_npu.empty_with_format(list(sizes), dtype=dtype, device="npu", acl_format=format)
    assert (torch_npu.get_npu_format(empty), torch_npu.get_storage_size(empty)) == (format, elements)


@pytest.mark.parametrize(
    ("sizes", "base"), [((2, 3, 4, 5), 0), ((2, 3, 4), 47), ((2, 3, 4, 5, 6), 30), ((2, 3), 2), ((), 2)]
)
def test_new_tensors_have_the_format_of_their_rank(sizes, base):
    assert torch_npu.get_npu_format(torch.empty(sizes, device="npu")) == base


def test_from_named_blocks_nd_gives_the_names_back():
    x = torch_npu.npu_format_cast(torch.ones(2, 2, 4, 4, device="npu"), 3)
    assert torch_npu.get_npu_format(torch_npu.npu_format_cast(x, 2)) == 0


def test_views_share_the_format_and_arithmetic_leaves_it():
    x = torch_npu.npu_format_cast(torch.arange(64.0, device="npu").view(8, 8), 29)
    assert torch_npu.get_npu_format(x[2:]) == 29
    assert torch_npu.get_npu_format(x + 1) == 2
    assert torch.equal(x[2:] @ x, (x[2:].cpu() @ x.cpu()).npu())


def test_in_place_keeps_the_object():
    x = torch.nn.Parameter(torch.rand(4, 5, device="npu"))
    before = x.detach().clone()
    with torch.no_grad():
        assert torch_npu.npu_format_cast_(x, 29) is x
    assert torch_npu.get_npu_format(x) == 29 and torch.equal(x, before)
    other = torch_npu.npu_format_cast_(torch.zeros(4, 5, device="npu"), x.detach())
    assert torch.equal(other, before)


def test_cast_like_another_tensor_and_its_gradient():
    like = torch_npu.npu_format_cast(torch.ones(4, 5, device="npu"), 29)
    x = torch.rand(4, 5, device="npu", requires_grad=True)
    y = torch_npu.npu_format_cast(x, like)
    assert torch_npu.get_npu_format(y) == 29
    (y * y).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    same = torch_npu.npu_format_cast(x, torch_npu.get_npu_format(x))
    same.sum().backward()


def test_unknown_format():
    with pytest.raises(RuntimeError, match="7 is not a format that tensors can have"):
        torch_npu.npu_format_cast(torch.ones(2, device="npu"), 7)


def test_memory_is_counted():
    x = torch.ones(1, 1, 1000, 1000, device="npu", dtype=torch.float16)
    before = torch.npu.memory_allocated()
    y = torch_npu.npu_format_cast(x, 3)
    assert torch.npu.memory_allocated() - before >= 16 * 2 * 10**6
    del y


def test_change_data_ptr_makes_a_view():
    source, target = torch.arange(10.0, device="npu"), torch.zeros(2, 2, device="npu")
    assert torch_npu.npu_change_data_ptr(target, source, 4) == 0
    assert target.tolist() == [[4, 5], [6, 7]]
    source[4] = -1
    assert target[0, 0] == -1
    with pytest.raises(RuntimeError, match="do not fit"):
        torch_npu.npu_change_data_ptr(target, source, 7)


def test_prefetch_does_nothing_and_checks():
    x = torch.ones(3, device="npu")
    assert torch_npu.npu_prefetch(x, None, 12) is None
    with pytest.raises(RuntimeError, match="max_size must be positive"):
        torch_npu.npu_prefetch(x, None, 0)


@pytest.mark.parametrize(("number", "dtype"), [(256 + 27, torch.bfloat16), (256 + 1, torch.float16), (torch.int32, torch.int32)])
def test_types_by_number(number, dtype):
    assert torch_npu.npu_dtype_cast(torch.ones(3, device="npu"), number).dtype == dtype


def test_cast_gradient_has_the_input_type():
    x = torch.ones(3, device="npu", requires_grad=True)
    torch_npu.npu_dtype_cast(x, torch.bfloat16).sum().backward()
    assert x.grad.dtype == torch.float32
