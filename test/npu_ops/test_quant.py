"""Quantisation and products of quantised operands, against the definitions on the CPU."""

import pytest
import torch
import torch_npu

F8 = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def int4(*sizes):
    return torch.randint(-8, 8, sizes, dtype=torch.int32)


def test_int4_packing_keeps_the_first_value_in_the_lowest_bits():
    values = torch.tensor([[1, -1, 7, -8, 0, 2, 3, -4]], dtype=torch.int32)
    packed = torch_npu.npu_convert_weight_to_int4pack(values.npu())
    want = sum((int(v) & 15) << (4 * i) for i, v in enumerate(values[0]))
    assert packed.tolist() == [[want - (1 << 32) if want >= 1 << 31 else want]]
    with pytest.raises(RuntimeError, match="multiple of 8"):
        torch_npu.npu_convert_weight_to_int4pack(values[:, :5].npu())


@pytest.mark.parametrize("mode", ["pertoken", "pertensor", "perchannel"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dynamic_quant(mode, dtype):
    x = torch.randn(3, 5, 16).to(dtype)
    x[1, 2] = 0
    y, scale = torch_npu.npu_dynamic_quant(x.npu(), quant_mode=mode)
    dims = {"pertoken": (-1,), "pertensor": (0, 1, 2), "perchannel": (-2,)}[mode]
    want = x.float().abs().amax(dims, keepdim=True) / 127
    torch.testing.assert_close(scale.cpu().flatten(), want.flatten())
    assert torch.equal(y.cpu(), (x.float() / want).nan_to_num().round().to(torch.int8))
    assert y.dtype == torch.int8 and scale.dtype == torch.float32


def test_dynamic_quant_with_smooth_scales_of_experts():
    x, smooth = torch.randn(7, 8), torch.rand(3, 8) + 0.5
    y, scale = torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=smooth.npu(), group_index=torch.tensor([2, 2, 7]).npu())
    rows = x * smooth[torch.tensor([0, 0, 2, 2, 2, 2, 2])]
    torch.testing.assert_close(scale.cpu(), rows.abs().amax(1) / 127)
    assert torch.equal(y.cpu(), (rows / scale.cpu()[:, None]).round().to(torch.int8))


def test_dynamic_quant_to_other_types():
    x = torch.randn(4, 16)
    packed, scale = torch_npu.npu_dynamic_quant(x.npu(), dst_type=torch.quint4x2)
    want = torch_npu.npu_convert_weight_to_int4pack((x / (x.abs().amax(1, keepdim=True) / 7)).round().int().npu())
    assert torch.equal(packed, want) and packed.shape == (4, 2)
    for dtype, largest in F8.items():
        y, scale = torch_npu.npu_dynamic_quant(x.npu(), dst_type=dtype)
        want = (x / (x.abs().amax(1, keepdim=True) / largest)).clamp(-largest, largest).to(dtype)
        assert torch.equal(y.cpu().float(), want.float())


@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (2, 32), (64, 64)])
def test_dynamic_block_quant(rows, columns):
    x = torch.randn(5, 150)
    y, scale = torch_npu.npu_dynamic_block_quant(x.npu(), row_block_size=rows, col_block_size=columns)
    assert scale.shape == (-(-5 // rows), -(-150 // columns)) and y.dtype == torch.int8
    for i in range(scale.size(0)):
        for j in range(scale.size(1)):
            block = x[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            torch.testing.assert_close(scale[i, j].cpu(), block.abs().max() / 127)
            got = y[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].cpu()
            assert torch.equal(got, (block / (block.abs().max() / 127)).round().to(torch.int8))


@pytest.mark.parametrize("dtype", list(F8))
@pytest.mark.parametrize(("sizes", "axis"), [((3, 64), -1), ((3, 70), -1), ((40, 5), 0), ((2, 33, 4), 1)])
def test_mx_quant(dtype, sizes, axis):
    x = torch.randn(sizes) * 8
    x[0] = 0
    y, scale = torch_npu.npu_dynamic_mx_quant(x.npu(), axis=axis, dst_type=dtype)
    exponent = scale.cpu().view(torch.uint8).int().movedim(axis if axis >= 0 else axis - 1, -2).flatten(-2) - 127
    emax = {torch.float8_e4m3fn: 8, torch.float8_e5m2: 15}[dtype]
    lanes = x.movedim(axis, -1)
    for block in range(-(-lanes.size(-1) // 32)):
        part = lanes[..., block * 32 : (block + 1) * 32]
        top = part.abs().amax(-1)
        want = torch.where(top == 0, -127, top.clamp(min=1e-30).log2().floor().int() - emax)
        assert torch.equal(exponent[..., block], want.to(exponent.dtype))
        scaled = part.double() / 2.0 ** want.double()[..., None]
        got = y.cpu().float().movedim(axis, -1)[..., block * 32 : (block + 1) * 32]
        assert torch.equal(got, scaled.clamp(-F8[dtype], F8[dtype]).float().to(dtype).float())


def test_mx_quant_to_float4():
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    x = torch.randn(4, 64)
    y, scale = torch_npu.npu_dynamic_mx_quant(x.npu())
    assert y.dtype == torch.uint8 and y.shape == (4, 32)
    codes = torch.stack((y.cpu() & 15, y.cpu() >> 4), -1).flatten(1).long()
    values = grid[codes & 7] * torch.where(codes >= 8, -1, 1)
    exponent = scale.cpu().view(torch.uint8).int().flatten(1) - 127
    scaled = x / 2.0 ** exponent.repeat_interleave(32, 1)
    distance = (scaled.abs()[..., None] - grid).abs().amin(-1)
    torch.testing.assert_close((values - scaled).abs(), distance, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "result"), [(torch.qint8, torch.int8), (torch.quint8, torch.uint8), (torch.qint32, torch.int32)])
def test_quantize_by_division(dtype, result):
    x, scale, zero = torch.randn(4, 6), torch.rand(6) + 0.1, torch.randint(0, 5, (6,), dtype=torch.int32)
    y = torch_npu.npu_quantize(x.npu(), scale.npu(), zero.npu(), dtype, 1)
    limits = torch.iinfo(result)
    want = ((x / scale).round() + zero).clamp(limits.min, limits.max).to(result)
    assert torch.equal(y.cpu(), want) and y.dtype == result


@pytest.mark.parametrize("sizes", [(1,), (6,), (4, 1)])
def test_quantize_by_multiplication(sizes):
    x, scale, zero = torch.randn(4, 6), torch.rand(sizes) * 30, torch.randn(sizes)
    y = torch_npu.npu_quantize(x.npu(), scale.npu(), zero.npu(), torch.qint8, -1, div_mode=False)
    assert torch.equal(y.cpu(), (x * scale + zero).round().clamp(-128, 127).to(torch.int8))


def int8(*sizes):
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int32])
def test_quant_matmul(batch, per_column, dtype):
    x1, x2 = int8(*batch, 5, 64), int8(*batch, 64, 6)
    scale, bias = torch.rand(6 if per_column else 1) * 1e-3, torch.randint(-99, 99, (6,), dtype=torch.int32)
    y = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), bias=bias.npu(), output_dtype=dtype)
    want = ((x1.long() @ x2.long() + bias).double() * scale).to(torch.float64)
    want = want.round().clamp(-128, 127).to(dtype) if dtype == torch.int8 else want.to(dtype)
    torch.testing.assert_close(y.cpu(), want)


def test_quant_matmul_per_token_offset_and_packed_scale():
    x1, x2 = int8(5, 32), int8(32, 6)
    per_token, bias = torch.rand(5), torch.randn(6)
    y = torch_npu.npu_quant_matmul(
        x1.npu(), x2.npu(), torch.full((6,), 1e-3).npu(), pertoken_scale=per_token.npu(), bias=bias.npu(), output_dtype=torch.float16
    )
    want = (x1.long() @ x2.long()).double() * 1e-3 * per_token.double()[:, None] + bias
    torch.testing.assert_close(y.cpu(), want.half(), rtol=2e-3, atol=2e-3)
    packed = torch.tensor([2.0**-10]).view(torch.int32).to(torch.int64)
    y = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), packed.npu(), offset=torch.tensor([3.0]).npu())
    assert torch.equal(y.cpu(), ((x1.long() @ x2.long()).double() / 1024 + 3).round().clamp(-128, 127).to(torch.int8))


def test_quant_matmul_of_int4():
    a, b = int4(5, 16), int4(16, 8)
    pack = lambda t: torch_npu.npu_convert_weight_to_int4pack(t.npu())  # noqa: E731
    y = torch_npu.npu_quant_matmul(pack(a), pack(b), torch.ones(1).npu(), output_dtype=torch.float16)
    assert torch.equal(y.cpu(), (a @ b).half())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("group", [0, 32])
def test_weight_quant_batchmatmul(packed, transposed, group):
    x, w = torch.randn(5, 64, dtype=torch.float16), int4(64, 16)
    rows = 64 // group if group else 1
    scale, offset, bias = torch.rand(rows, 16).half(), torch.randn(rows, 16).half(), torch.randn(16).half()
    stored = w.T.contiguous() if transposed else w
    device = torch_npu.npu_convert_weight_to_int4pack(stored.npu()) if packed else stored.to(torch.int8).npu()
    y = torch_npu.npu_weight_quant_batchmatmul(
        x.npu(), device.T if transposed else device, scale.npu(), offset.npu(), bias=bias.npu(), antiquant_group_size=group
    )
    wide = lambda t: t.double().repeat_interleave(64 // rows, 0)  # noqa: E731
    want = x.double() @ ((w + wide(offset)) * wide(scale)) + bias
    torch.testing.assert_close(y.cpu(), want.half(), rtol=2e-3, atol=2e-2)


def test_unknown_types_are_named():
    x = torch.randn(4, 8).npu()
    with pytest.raises(NotImplementedError, match="only int8, quint4x2, float8_e5m2 and float8_e4m3fn"):
        torch_npu.npu_dynamic_quant(x, dst_type=torch.int16)
    with pytest.raises(NotImplementedError, match="the type 290 is not implemented|neither a torch.dtype"):
        torch_npu.npu_dynamic_mx_quant(x, dst_type=290)
