"""What an operator on npu tensors must do besides computing: devices, aliasing, layouts, resizing, errors.

Values of single operators are test/operators' subject.
"""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize(
    "operation",
    [
        lambda npu, cpu: npu + cpu,
        lambda npu, cpu: npu @ cpu,
        lambda npu, cpu: torch.cat([npu, cpu]),
        lambda npu, cpu: torch.add(npu, 1, out=cpu),
        lambda npu, cpu: cpu.add_(npu),
        lambda npu, cpu: torch.where(npu > 0, cpu, npu),
        lambda npu, cpu: npu.index_select(0, cpu[0].long()),
        lambda npu, cpu: npu + npu.to("npu:1"),
        lambda npu, cpu: torch.tensor(1.0).add_(npu[0, 0]),
        lambda npu, cpu: F.embedding(torch.tensor([0]), npu),
    ],
)
def test_mixing_devices_is_refused_and_changes_nothing(operation):
    npu, cpu = torch.ones(2, 2, device="npu"), torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        operation(npu, cpu)
    assert torch.equal(npu.cpu(), torch.ones(2, 2)) and torch.equal(cpu, torch.ones(2, 2))


def test_scalars_of_the_cpu_and_cpu_indices_are_accepted():
    x = torch.arange(4.0, device="npu")
    assert (x * torch.tensor(2.0)).tolist() == [0, 2, 4, 6]
    assert x[torch.tensor([3, 0])].tolist() == [3, 0]
    x[torch.tensor([True, False, False, False])] = 9
    assert x.tolist() == [9, 1, 2, 3]


def test_copies_between_all_devices():
    source = torch.arange(6.0).view(2, 3).t()
    there = source.to("npu:1").to("npu:2", torch.float64).to("npu:0", torch.float32)
    assert there.device == torch.device("npu:0") and torch.equal(there.cpu(), source)
    lists = [torch.zeros(3, device="npu:0")], [torch.ones(3, device="npu:1")]
    torch._foreach_copy_(*lists)
    assert lists[0][0].tolist() == [1, 1, 1]


def test_views_share_storage_and_results_of_one_kernel_share_theirs():
    x = torch.zeros(4, 4, device="npu")
    view = x.view(16)[3:7].unfold(0, 2, 1)
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    view.fill_(1)
    assert x.sum().item() == 4
    parts = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="npu").unbind()
    assert len({part.untyped_storage()._cdata for part in parts}) == 1


def test_out_is_resized_and_keeps_its_identity():
    out = torch.empty(0, device="npu")
    result = torch.add(torch.ones(3, device="npu"), 1, out=out)
    assert result is out and out.tolist() == [2, 2, 2]
    assert out.untyped_storage().nbytes() == 12


def test_out_takes_the_conjugate_bit_of_the_kernel():
    torch.manual_seed(0)
    a, b = (torch.randn(3, 3, dtype=torch.complex64) for _ in range(2))
    expected = torch.linalg.solve(a, b)
    out = torch.empty(0, dtype=torch.complex64, device="npu")
    torch.linalg.solve(a.npu(), b.npu(), out=out)
    torch.testing.assert_close(out.cpu(), expected)


def test_storage_resized_to_zero_and_back():
    x = torch.arange(1000.0, device="npu")
    before = torch.npu.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.npu.memory_allocated() == before - 4096  # 4000 bytes, rounded to 512
    x.untyped_storage().resize_(4000)
    assert torch.npu.memory_allocated() == before
    assert x.fill_(2).sum().item() == 2000 and x.data_ptr() == x.untyped_storage().data_ptr()


def test_module_to_keeps_parameters_ties_and_the_optimizer():
    embedding, head = nn.Embedding(4, 4), nn.Linear(4, 4, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    parameter = embedding.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.npu()
    assert embedding.weight is parameter and head.weight is parameter and parameter.is_npu
    before = parameter.detach().cpu().clone()
    model(torch.tensor([0], device="npu")).sum().backward()
    optimizer.step()
    assert not torch.equal(parameter.detach().cpu(), before)
    model.cpu()
    assert head.weight is parameter and parameter.device.type == "cpu"


def test_parameter_data_moves_both_ways():
    parameter = nn.Parameter(torch.ones(2))
    for device in ("npu", "cpu", "npu"):
        parameter.grad = None
        parameter.data = parameter.data.to(device)
        (parameter * 2).sum().backward()
        assert parameter.grad.device.type == device and parameter.grad.tolist() == [2, 2]


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_equal_the_cpu(cell):
    torch.manual_seed(0)
    reference = cell(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    layer = copy.deepcopy(reference).npu()
    x = torch.randn(3, 7, 4)
    expected, result = reference(x)[0], layer(x.npu())[0]
    torch.testing.assert_close(result.cpu(), expected)
    expected.square().sum().backward()
    result.square().sum().backward()
    for p, q in zip(reference.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-5)


def test_packed_sequences_keep_their_lengths_on_the_host():
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4, device="npu"), torch.tensor([3, 2]))
    output, _ = nn.LSTM(4, 5).npu()(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(output)
    assert packed.batch_sizes.device.type == "cpu" and padded.is_npu and lengths.tolist() == [3, 2]


def test_sparse_tensors_written_in_place():
    sparse = torch.eye(3).to_sparse().npu()
    other = (torch.eye(3) * 2).to_sparse().npu()
    sparse.copy_(other)
    assert torch.equal(sparse.to_dense().cpu(), torch.eye(3) * 2)
    torch.neg(other, out=sparse)
    assert torch.equal(sparse.to_dense().cpu(), torch.eye(3) * -2)
    assert sparse.zero_()._nnz() == 0


@pytest.mark.parametrize("to_layout", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc])
def test_sparse_tensors_move_between_cards_and_host(to_layout):
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    moved = to_layout(dense).to("npu:1").to("npu:2")
    assert moved.device == torch.device("npu:2") and moved.values().device == moved.device
    assert (moved * 2).device == moved.device
    back = moved.cpu()
    assert back.device.type == "cpu" and back.layout == moved.layout and torch.equal(back.to_dense(), dense)
    assert to_layout(dense.npu()).is_npu


def test_sparse_mm_reduce_has_a_gradient_for_amax():
    grads = []
    for device in ("cpu", "npu"):
        matrix = torch.tensor([[1.0, 2.0], [0.0, 3.0]], device=device).to_sparse_csr()
        dense = torch.arange(4.0, device=device).view(2, 2).requires_grad_()
        torch.sparse.mm(matrix, dense, "amax").sum().backward()
        grads.append(dense.grad.cpu())
    assert torch.equal(*grads)


def test_nested_tensors_strided_and_jagged():
    pieces = [torch.ones(2, 3), torch.ones(4, 3)]
    strided = torch.nested.nested_tensor(pieces, device="npu")
    assert (strided * 2).to_padded_tensor(0.0).sum().item() == 36
    assert strided.cpu().device.type == "cpu" and strided.unbind()[1].is_npu
    assert F.linear(strided, torch.ones(5, 3, device="npu")).unbind()[0].shape == (2, 5)
    jagged = torch.nested.nested_tensor(pieces, layout=torch.jagged, device="npu")
    assert (jagged * 2).values().is_npu


def test_padding_a_nested_tensor_has_a_gradient():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device="npu", requires_grad=True)
    (nested.to_padded_tensor(0.0) * 2).sum().backward()
    assert [(piece == 2).all().item() for piece in nested.grad.unbind()] == [True, True]


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 2)], ids=["conv", "transposed"])
def test_a_traced_convolution_reads_its_input_and_loads_on_another_device(layer):
    example, other = torch.zeros(1, 3, 6, 6), torch.arange(108.0).view(1, 3, 6, 6)
    on_npu = copy.deepcopy(layer).npu()
    traced = torch.jit.trace(on_npu, example.npu())
    assert torch.equal(traced(other.npu()), on_npu(other.npu()))

    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(layer, example), file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location="npu:1")
    result = loaded(other.to("npu:1"))
    torch.testing.assert_close(result.cpu(), layer(other))
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())


def test_quantized_tensors_stay_on_the_card_and_move():
    x = torch.tensor([-1.0, 0.0, 0.5])
    expected = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    quantized = torch.quantize_per_tensor(x.npu(), 0.1, 0, torch.qint8)
    assert quantized.is_npu and quantized.dequantize().is_npu and quantized.int_repr().is_npu
    assert torch.equal(quantized.cpu().int_repr(), expected.int_repr())
    assert torch.equal(expected.npu().dequantize().cpu(), expected.dequantize())


@pytest.mark.parametrize("devices", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_copying_into_a_quantized_tensor_takes_the_scale_along(devices):
    x = torch.tensor([1.0, 2.0])
    coarse, fine = (torch.quantize_per_tensor(x, scale, 0, torch.qint8).to(d) for scale, d in zip((0.5, 0.1), devices))
    coarse.copy_(fine)
    assert coarse.q_scale() == 0.1 and coarse.dequantize().tolist() == fine.dequantize().tolist()


@pytest.mark.parametrize("arguments", [(8,), (8, False), (8, True, 5.0)])
def test_kaiser_window(arguments):
    window = torch.kaiser_window(*arguments, device="npu:1", dtype=torch.float64)
    assert window.device == torch.device("npu:1")
    assert torch.equal(window.cpu(), torch.kaiser_window(*arguments, dtype=torch.float64))


def test_lists_that_an_operator_writes_count_versions():
    parameters, gradients, first, second = ([torch.ones(2, device="npu")] for _ in range(4))
    steps = [torch.zeros((), device="npu")]
    settings = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)
    torch._fused_adamw_(parameters, gradients, first, second, [], steps, **settings)
    assert all(written[0]._version == 1 for written in (parameters, first, second)) and steps[0]._version == 0
    out = [torch.empty(1, device="npu"), torch.empty(2, device="npu")]
    torch.split_with_sizes_copy(torch.arange(3.0, device="npu"), [1, 2], out=out)
    assert [t._version for t in out] == [1, 1] and out[1].tolist() == [1, 2]


def test_layouts_that_are_not_simulated_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="Mkldnn"):
        torch.ones(2, 2, device="npu").to_mkldnn()


def test_deterministic_mode_fills_uninitialized_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="npu").isnan().all()
        assert torch.empty(0, device="npu").resize_(2).isnan().all()
        filled = torch.empty_strided((2,), (1,), dtype=torch.int32, device="npu")
        assert filled.tolist() == [torch.iinfo(torch.int32).max] * 2
    finally:
        torch.use_deterministic_algorithms(False)


def test_foreach_in_place_tells_autograd():
    x = torch.ones(2, device="npu", requires_grad=True)
    saved = x * 2
    loss = (saved * saved).sum()
    with torch.no_grad():
        torch._foreach_add_([saved.detach()], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("positions", [4, 64])
def test_attention_refuses_keys_without_values(positions):
    query, value = torch.ones(1, 2, positions, 8, device="npu"), torch.ones(1, 2, positions - 1, 8, device="npu")
    with pytest.raises(RuntimeError, match="same sequence length"):
        F.scaled_dot_product_attention(query, query, value)


def test_types_that_a_convolution_cannot_mix_are_those_of_the_given_tensors():
    layer, image = nn.Conv2d(1, 1, 3, bias=False).npu(), torch.ones(1, 1, 4, 4, device="npu")
    with pytest.raises(RuntimeError, match=r"Input type \(npuHalfType\) and weight type \(npuFloatType\)"):
        layer(image.half())


def test_eigenvalues_of_what_is_not_finite_are_refused():
    matrix = torch.full((2, 2), float("nan"), device="npu")
    for compute in (torch.linalg.eigvals, lambda m: torch.linalg.eigvals(m, out=torch.ones(2).cfloat().npu())):
        with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
            compute(matrix)


def test_attention_with_a_mask_that_needs_a_gradient():
    q, k, v = (torch.randn(1, 2, 4, 8, device="npu", requires_grad=True) for _ in range(3))
    mask = torch.randn(1, 1, 4, 4, device="npu", requires_grad=True)
    F.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
    assert mask.grad.shape == mask.shape


def test_exception_in_backward_reaches_the_caller():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("from backward")

    with pytest.raises(ValueError, match="from backward"):
        Fails.apply(torch.ones(2, device="npu", requires_grad=True)).sum().backward()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_zero_size_and_zero_dimensional_tensors(shape):
    x = torch.ones(shape, device="npu", requires_grad=True)
    (x.exp() + x.sum()).sum().backward()
    assert x.grad.shape == x.shape
    assert x.detach().clone().cpu().shape == shape and torch.cat([x.detach().flatten()] * 2).numel() == 2 * x.numel()


def test_transforms():
    gradients = torch.func.vmap(torch.func.grad(lambda x: (x**2).sum()))(torch.ones(3, 2, device="npu"))
    assert gradients.is_npu and gradients.tolist() == [[2, 2]] * 3
    _, tangent = torch.func.jvp(torch.sin, (torch.zeros(2, device="npu"),), (torch.ones(2, device="npu"),))
    assert tangent.tolist() == [1, 1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU()).npu()
    x = torch.randn(2, 4, device="npu")
    compiled = torch.compile(model, backend=backend)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    assert model[0].weight.grad.is_npu


def test_modules_without_shapes_yet_can_be_moved():
    model = nn.LazyLinear(4).npu()
    assert model(torch.ones(2, 3, device="npu")).shape == (2, 4) and model.weight.shape == (4, 3) and model.weight.is_npu


def test_lazy_clone_is_a_copy():
    x = torch.ones(3, device="npu")
    torch._lazy_clone(x).add_(1)
    assert x.tolist() == [1, 1, 1]


def test_host_memory_is_guarded():
    """A write larger than the host's memory raises instead of ending the process."""
    available = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable")) * 1024
    size = min(available + (2 << 30), torch.npu.mem_get_info()[0] - (1 << 30))
    if size < available:
        pytest.skip("this host has more memory than the simulated card")
    virtual = torch.empty(size, dtype=torch.uint8, device="npu")
    try:
        with pytest.raises(torch.OutOfMemoryError, match="the host cannot back it"):
            virtual.fill_(1)
    finally:
        del virtual
        torch.npu.empty_cache()


def test_tensors_freed_after_the_interpreter_began_to_end(run_python):
    run_python(
        "import torch, atexit, weakref\n"
        "class Late:\n"
        "    def __init__(self): self.x = torch.ones(100, device='npu')\n"
        "    def __del__(self): self.x + 1\n"
        "late = Late(); cycle = [late]; cycle.append(cycle)\n"
        "atexit.register(lambda: torch.ones(3, device='npu').sum().item())\n"
    )


def test_boxed_and_direct_kernels_agree(run_python):
    code = (
        "import torch; torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16),"
        " torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)).npu(); x = torch.randn(3, 8, device='npu');"
        " o = torch.optim.AdamW(m.parameters());\n"
        "for _ in range(3): o.zero_grad(); l = m(x).square().mean(); l.backward(); o.step()\n"
        "print(repr(l.item()))"
    )
    assert run_python(code) == run_python(code, TORCH_CANN_DIRECT_OPS="0")


@pytest.mark.parametrize("use", [lambda x: x + 1, lambda x: x.mul_(2), lambda x: x.cos(), lambda x: x.cpu(), lambda x: x.sum()])
def test_memory_that_was_freed_is_refused(use):
    x = torch.ones(4, device="npu")
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="whose storage has 0 bytes"):
        use(x)
    x.untyped_storage().resize_(16)
    assert x.fill_(2).tolist() == [2] * 4


def test_freed_memory_in_a_list_is_refused():
    x, y = torch.ones(4, device="npu"), torch.ones(4, device="npu")
    y.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="whose storage has 0 bytes"):
        torch._foreach_add_([x, y], 1.0)
    with pytest.raises(RuntimeError, match="whose storage has 0 bytes"):
        torch._foreach_mul([x, x], [x, y])
    assert x.tolist() == [1] * 4


def test_a_refused_list_leaves_the_heap_as_it_was(run_python):
    code = """
import torch
x, y = torch.ones(4, device="npu"), torch.ones(4, device="npu")
y.untyped_storage().resize_(0)
refused = 0
for _ in range(200):
    for use in (lambda: torch._foreach_mul([x, x], [x, y]), lambda: torch.cat([x, y])):
        try:
            use()
        except RuntimeError:
            refused += 1
print(refused, x.tolist())
"""
    # The checking allocator of glibc ends the process at the first block that is not as it was.
    checked = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85"}
    assert run_python(code, **checked) == "400 [1.0, 1.0, 1.0, 1.0]"


_USES = [
    lambda x: x + 1,
    lambda x: x.mul_(2),
    lambda x: x.zero_(),
    lambda x: x.copy_(torch.ones_like(x.detach().cpu())),
    lambda x: x.cos(),
    lambda x: x.sum(),
    lambda x: x.t() @ x.t().t(),
    lambda x: F.layer_norm(x, (64,)),
    lambda x: torch._foreach_add_([x], 1.0),
    lambda x: x[:, 1::2].add_(1),
    lambda x: x.expand(2, 128, 64).sum(),
    lambda x: x.cpu(),
]


@pytest.mark.parametrize("use", _USES)
def test_a_storage_that_became_too_small_is_refused_and_nothing_is_written(use):
    x = torch.ones(128, 64, device="npu")
    part = x[:2]
    x.untyped_storage().resize_(4096)
    others = [torch.full((64,), 7.0, device="npu") for _ in range(100)]  # where the rest of x was
    # The first is ours, the second PyTorch's, where a view is made first.
    ours, of_a_view = "has 4096 bytes where it needs 32768", "of 32768 are out of bounds for storage of size 4096"
    with pytest.raises(RuntimeError, match=f"{ours}|{of_a_view}"):
        use(x)
    assert all(other.tolist() == [7.0] * 64 for other in others)
    assert part.add_(1).sum().item() == 2 * 2 * 64  # lies within


# PyTorch's CPU gather does not look at the expanded index of the last one.
_OUT_OF_RANGE = [
    (lambda w, i: F.embedding(i, w), "aten::embedding"),
    (lambda w, i: w.index_select(0, i), "aten::index_select"),
    (lambda w, i: w.gather(0, i[:, None]), "aten::gather"),
    (lambda w, i: w.scatter_(0, i[:, None], 1.0), "aten::scatter_"),
    (lambda w, i: w.scatter_add(0, i[:, None], w), "aten::scatter_add"),
    (lambda w, i: w[i], "aten::index"),
    (lambda w, i: w.index_put_((i,), torch.tensor(1.0)), "aten::index_put_"),
    (lambda w, i: w.index_add(0, i, w[:2]), "aten::index_add"),
    (lambda w, i: w.take(i * 10), "aten::take"),
    (lambda w, i: F.cross_entropy(w[:2], i), "aten::nll_loss_forward"),
    (lambda w, i: w.gather(0, i[:, None].expand(2, 3)), "aten::gather"),
]


@pytest.mark.parametrize(("operation", "name"), _OUT_OF_RANGE)
@pytest.mark.parametrize("bad", [4, -5])
def test_an_index_out_of_range_names_the_operator_as_a_device_assert(operation, name, bad):
    w = torch.ones(4, 3, device="npu")
    with pytest.raises(RuntimeError) as raised:
        operation(w, torch.tensor([0, bad], device="npu"))
    text = str(raised.value)
    assert text.startswith(f"{name}: ") and "out of" in text
    assert f"NPU function error: {name} (device-side assert), error code is 507015\n[ERROR] " in text
    assert "ERR00100 PTA call acl api failed\n[Error]: AI core exception" in text


def test_other_errors_of_indexing_keep_their_type():
    w = torch.ones(4, 3, device="npu")
    with pytest.raises(IndexError, match="Dimension out of range"):
        w.index_select(5, torch.tensor([0], device="npu"))
    assert torch.take_along_dim(w, torch.tensor([[3], [0]], device="npu"), 0).shape == (2, 3)
