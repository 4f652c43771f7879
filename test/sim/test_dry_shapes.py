"""Shape functions of a dry process: they agree with the CPU's kernels, and ordinary training needs none in Python."""

import json

_COMPARE = """
    import json
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    import torch_cann

    NAMES = set('''abs acos add addcdiv addcmul addmm addmv all amax amin aminmax any arange argmax argmin atan2 baddbmm
        bitwise_and bitwise_not bmm cat clamp clamp_max clamp_min copysign cos cumsum div eq erf exp expm1 fill floor fmax
        fmod gather ge gt hypot index_add index_copy index_select isinf isnan le lerp linalg.vector_norm log log_softmax
        logical_and logical_not logical_or logical_xor lt masked_fill max maximum mean min minimum mm mul ne neg
        nn.functional.avg_pool2d nn.functional.dropout nn.functional.elu nn.functional.embedding nn.functional.gelu
        nn.functional.glu nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.layer_norm
        nn.functional.leaky_relu nn.functional.max_pool2d nn.functional.mish nn.functional.mse_loss
        nn.functional.nll_loss nn.functional.relu nn.functional.silu nn.functional.smooth_l1_loss nn.functional.softplus
        nn.functional.threshold pow prod reciprocal remainder round rsqrt scatter scatter_add sgn sigmoid sign sin softmax
        sort sqrt sub sum tanh topk tril triu trunc where xlogy zero_'''.split())

    def moved(value):
        if isinstance(value, torch.Tensor):
            return value.detach().to("meta").requires_grad_(value.requires_grad)
        if isinstance(value, (list, tuple)):
            return type(value)(moved(item) for item in value)
        return value

    def geometry(value):
        if isinstance(value, torch.Tensor):
            # Of a dimension of one element, or of no elements, no stride is ever used.
            strides = [s for n, s in zip(value.shape, value.stride()) if n > 1] if value.numel() else []
            return [list(value.shape), strides, str(value.dtype)]
        return [geometry(item) for item in value] if isinstance(value, (list, tuple)) else None

    def outcome(info, first, args, kwargs):
        result = info.op(first, *args, **kwargs)
        return result, geometry(result)

    def gradient(result, inputs):
        result = result[0] if isinstance(result, tuple) else result
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            return None
        return [list(grad.shape) for grad in torch.autograd.grad(result.sum(), inputs, allow_unused=True) if grad is not None]

    compared, wrong = {}, []
    for info in op_db:
        if info.name not in NAMES:
            continue
        for dtype in {torch.float32, torch.int64, torch.bool} & info.supported_dtypes("cpu"):
            differentiable = dtype == torch.float32 and info.supports_autograd
            for sample in list(info.sample_inputs("cpu", dtype, requires_grad=differentiable))[:10]:
                kwargs = {name: moved(value) for name, value in sample.kwargs.items() if name != "device"}
                if "device" in sample.kwargs:
                    kwargs["device"] = "meta"
                real, wanted = outcome(info, sample.input, sample.args, sample.kwargs)
                first = moved(sample.input)
                shaped, given = outcome(info, first, moved(sample.args), kwargs)
                compared[info.name] = compared.get(info.name, 0) + 1
                if wanted != given:
                    wrong.append([info.name, str(sample)[:300], wanted, given])
                elif differentiable and isinstance(first, torch.Tensor) and first.requires_grad:
                    if gradient(real, [sample.input]) != gradient(shaped, [first]):
                        wrong.append([info.name, "gradient", str(sample)[:300]])
    print(json.dumps({"missing": sorted(NAMES - set(compared)), "wrong": wrong}))
"""


def test_shapes_are_those_of_the_cpu(run_code) -> None:
    found = json.loads(run_code(_COMPARE, TORCH_CANN_DRY_RUN="1").splitlines()[-1])
    assert found["wrong"] == []
    assert found["missing"] == []


def test_training_needs_no_shape_function_in_python(run_code) -> None:
    code = """
    import sys
    import torch
    import torch.nn as nn
    import torch_npu

    layer = nn.TransformerEncoderLayer(1024, 8, batch_first=True, activation="gelu").npu().bfloat16()
    head = nn.Sequential(nn.Embedding(4096, 1024), layer, nn.Linear(1024, 4096)).npu().bfloat16()
    parameters = list(head.parameters())
    tokens = torch.zeros(2, 256, dtype=torch.long, device="npu")
    for _ in range(2):
        loss = nn.functional.cross_entropy(head(tokens).float().flatten(0, 1), tokens.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        with torch.no_grad():  # PyTorch's optimizers themselves import torch._dynamo
            torch._foreach_add_(parameters, [parameter.grad for parameter in parameters], alpha=-0.1)
    print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
    """
    assert run_code(code, TORCH_CANN_DRY_RUN="1") == "[]"
