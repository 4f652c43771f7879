"""Import names: torch_npu.*, torch.npu.* and cann.recipes are modules of torch_cann, the same objects, not copies.

``sys.modules`` alone cannot say so for modules that are not loaded yet, hence a finder: it answers for names below the
alias only, loads the real module and hands it back under the other name.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

# Prefix of the alias -> prefix of the real name; the first match counts.
PREFIXES = {
    "torch_npu.": "torch_cann.",
    "torch.npu.": "torch_cann.npu.",
    "cann.recipes": "torch_cann.recipes",
}

# Modules of torch_npu whose names are in a module with another name here: target -> addresses below torch_npu.
_GATHERED = {
    "contrib.boxes": "contrib.function.anchor_generator contrib.function.bbox_coder contrib.function.iou "
    "contrib.function.nms",
    "contrib.function": "contrib.function.fuse_add_softmax_dropout contrib.function.fused_attention "
    "contrib.function.index_op contrib.function.matmul_transpose contrib.function.npu_functional "
    "contrib.function.roll",
    "contrib.module": "contrib.module._batchnorm_with_int32_count contrib.module._ensemble_dropout "
    "contrib.module.fusedcolorjitter contrib.module.activations contrib.module.bidirectional_lstm "
    "contrib.module.channel_shuffle "
    "contrib.module.crossentropy contrib.module.drop_path contrib.module.ensemble_dropout contrib.module.focus "
    "contrib.module.multihead_attention contrib.module.npu_modules contrib.module.prefetcher "
    "contrib.module.deform_conv contrib.module.linear_a8w8_quant contrib.module.linear_quant "
    "contrib.module.linear_weight_quant contrib.module.ps_roi_pooling contrib.module.quant_conv2d "
    "contrib.module.roi_align",
    "distributed": "distributed.distributed_c10d",
    "distributed.context_parallel": "distributed.tensor.experimental._context_parallel._npu_attention",
    "distributed.rpc": "distributed.rpc.options",
    "jit": "jit.fusion_pass jit.fusion_pass.fast_gelu jit.register_fusion_pattern",
    "multiprocessing": "multiprocessing.reductions",
    "npu.aclnn": "npu.aclnn.backends",
    "npu.graphs": "npu.npugraph_ex npu._npugraph_handlers",
    "op_plugin": "op_plugin.atb op_plugin.atb._atb_ops",
    "optim": "optim.npu_fused_adadelta optim.npu_fused_adam optim.npu_fused_adamp optim.npu_fused_adamw "
    "optim.npu_fused_bert_adam optim.npu_fused_lamb optim.npu_fused_optim_base optim.npu_fused_rmsprop "
    "optim.npu_fused_rmsprop_tf optim.npu_fused_sgd",
    "profiler": "profiler.profiler profiler.profiler_interface",
    "utils._asd": "utils._asd_detector",
}
_MOVED = {
    f"torch_npu.{address}": f"torch_cann.{target}"
    for target, addresses in _GATHERED.items()
    for address in addresses.split()
}
# PyTorch's own work on npu as they are.
_MOVED |= {
    f"torch_npu.distributed.{name}": f"torch.distributed.{name}"
    for name in (
        "fsdp", "pipelining", "run", "tensor", "tensor.experimental", "tensor.experimental._context_parallel",
    )
}


def real_name(alias: str) -> str | None:
    if alias in _MOVED:
        return _MOVED[alias]
    for prefix, real in PREFIXES.items():
        if alias.startswith(prefix):
            return real + alias.removeprefix(prefix)
    return None


class AliasFinder:
    """A finder and loader in one, for ``sys.meta_path``."""

    @staticmethod
    def find_spec(fullname: str, path=None, target=None) -> ModuleSpec | None:
        real = real_name(fullname)
        if real is None or (real not in sys.modules and importlib.util.find_spec(real) is None):
            return None
        return ModuleSpec(fullname, AliasFinder, is_package=False)

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(real_name(spec.name))
        if spec.name not in _MOVED:
            _name_gathered(spec.name, module)
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        # The import system has just replaced __spec__ by the alias's; a reload must find the real one.
        module.__spec__ = module.__spec__.loader_state

    @staticmethod
    def get_code(fullname: str) -> CodeType:
        """For ``python -m torch_npu.utils.collect_env``."""
        real = real_name(fullname)
        return importlib.util.find_spec(real).loader.get_code(real)


def _name_gathered(address: str, module: ModuleType) -> None:
    """Names ``module``, known as ``address``, by its other addresses below that.

    Found in sys.modules, they are not set as attributes by the import system, which would hide functions of the same
    name; and ``module`` need not be a package to have modules below it.
    """
    for alias, real in _MOVED.items():
        if real == module.__name__ and alias.startswith(address + "."):
            sys.modules.setdefault(alias, module)
            vars(module).setdefault(alias.rpartition(".")[2], module)


def install() -> None:
    """Call when the modules that ``import torch_cann`` loads are loaded.

    They get their other names here, not when first imported under them: the import system would then also set them as
    attributes of their parent, over a class of the same name (torch.npu.mstx). And _C is no package, so the import
    system would not look for what is inside it.
    """
    for name, module in list(sys.modules.items()):
        for prefix, real in PREFIXES.items():
            if name.startswith(real):
                sys.modules.setdefault(prefix + name.removeprefix(real), module)
                _name_gathered(prefix + name.removeprefix(real), module)
    # Before the path finder: a package's __path__ would lead it to load a second copy of the same file.
    sys.meta_path.insert(0, AliasFinder)
