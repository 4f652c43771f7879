"""Environment variables: those that are read, and those of Ascend's software that change nothing here.

The one list of them: docs/environment.md is made of it (``python -m torch_cann.tools.environment``), and a test
compares it with what the sources read.
"""

from typing import NamedTuple


class Variable(NamedTuple):
    name: str
    default: str  # what holds when it is unset
    meaning: str  # with the allowed values


# Subject -> variables, by name.
READ: dict[str, list[Variable]] = {
    "Device": [
        Variable("ASCEND_LAUNCH_BLOCKING", "0", "1: the task queue is off; kernels run when they are called anyway"),
        Variable(
            "ASCEND_RT_VISIBLE_DEVICES",
            "all",
            "cards this process sees, such as `0,2`; read until the device is initialised",
        ),
        Variable("STREAMS_PER_DEVICE", "32", "size of the stream pool, 8 or 32; another value warns and means 32"),
        Variable("TASK_QUEUE_ENABLE", "1", "what `torch.npu.get_task_queue_enable()` answers: 0, 1 or 2"),
        Variable("TORCH_CANN_DEVICE_COUNT", "8", "cards in the server, 1 to 64"),
        Variable("TORCH_CANN_SOC", "`Ascend910B2`", "chip, a name in `csrc/sim/soc.toml`"),
        Variable(
            "TORCH_CANN_SOC_FILE",
            "none",
            "files with further chips or other figures, separated by colons; form as `csrc/sim/soc.toml`",
        ),
        Variable("TORCH_DEVICE_BACKEND_AUTOLOAD", "1", "PyTorch's own; 0: `import torch` does not load the device"),
        Variable("TORCH_NPU_COMPACT_ERROR_OUTPUT", "0", "1: messages without the line of time, process and error code"),
        Variable(
            "TORCH_NPU_DEVICE_CAPABILITY", "none", "what `torch.npu.get_device_capability()` answers, such as `9.0`"
        ),
        Variable("TORCH_TRANSFER_TO_NPU", "0", "1: as if the script had imported `torch_npu.contrib.transfer_to_npu`"),
    ],
    "Memory": [
        Variable("PYTORCH_ALLOC_CONF", "none", "as `PYTORCH_NPU_ALLOC_CONF`, which comes first"),
        Variable("PYTORCH_NO_NPU_MEMORY_CACHING", "0", "1: memory is released as soon as it is freed"),
        Variable(
            "PYTORCH_NPU_ALLOC_CONF", "none", "options of the caching allocator, `key:value,...`: [memory](memory.md)"
        ),
        Variable("TORCH_CANN_HBM_MB", "the chip's", "usable HBM of a card, 128 to 1048576 MiB"),
        Variable("TORCH_CANN_HOST_MARGIN_MB", "256", "host memory kept free, MiB"),
        Variable("TORCH_CANN_HUGE_PAGES", "1", "0: no transparent huge pages behind HBM"),
        Variable(
            "TORCH_CANN_SHARED_HBM",
            "1",
            "0: ranks of one host do not map each other's HBM; collectives then copy",
        ),
    ],
    "Operators": [
        Variable(
            "OMP_NUM_THREADS",
            "the host's cores",
            "PyTorch's own: threads of a process's kernels; torchrun sets it to 1 where it is unset and there is more "
            "than one rank",
        ),
        Variable(
            "TORCH_CANN_CPU_CAPABILITY",
            "`auto`",
            "instructions of our own kernels: `baseline`, `avx2`, `avx512`, or `auto`: the best there",
        ),
        Variable("TORCH_CANN_DIRECT_OPS", "1", "0: every operator takes the general path, for tests of it"),
        Variable(
            "TORCH_CANN_LOW_PRECISION",
            "`auto`",
            "16-bit products: by `native` units, in `float32`, or `auto`: what is faster here",
        ),
    ],
    "Collectives": [
        Variable("GLOO_SOCKET_IFNAME", "the host's", "Gloo's own: network interface between hosts"),
        Variable("HCCL_ALGO", "by size and ranks", "algorithm between hosts: [distributed](distributed.md)"),
        Variable("HCCL_BUFFSIZE", "200", "MB of each of a communicator's two buffers, counted in HBM"),
        Variable("HCCL_CONNECT_TIMEOUT", "the group's", "seconds to wait for all ranks to connect"),
        Variable("HCCL_EXEC_TIMEOUT", "the group's", "seconds an operation waits for its peers; 0: no limit"),
        Variable("HCCL_IF_IP", "none", "address for connections between hosts"),
        Variable("HCCL_SOCKET_IFNAME", "none", "network interface for connections between hosts"),
        Variable("P2P_HCCL_BUFFSIZE", "20", "as `HCCL_BUFFSIZE`, for a pair that sends and receives; 0: the group's"),
        Variable(
            "TORCH_CANN_HCCL_WIRE",
            "`exact`",
            "how float32 sums travel between hosts: `exact`, `fp16`, `bf16`, `int8`, `topk:FRACTION`",
        ),
        Variable(
            "TORCH_HCCL_ASYNC_ERROR_HANDLING",
            "2",
            "1 or 3: the process ends when it does not ask for the outcome of a failed operation",
        ),
        Variable("TORCH_HCCL_DEBUG_INFO_TEMP_FILE", "`/tmp/hccl_trace_rank_`", "the next one's file, before the rank"),
        Variable(
            "TORCH_HCCL_TRACE_BUFFER_SIZE", "0", "operations that are kept and written to a file when one fails"
        ),
    ],
    "Tools": [
        Variable("ASCEND_WORK_PATH", "none", "folder above `profiling_data`, where profiles go that name no folder"),
        Variable("TORCH_CANN_DRY_RUN", "0", "1: tensors without memory, operators without results; set by `npu-plan`"),
        Variable(
            "TORCH_CANN_RUNTIME_DIR",
            "`torch_cann` in `XDG_RUNTIME_DIR`, else `/tmp/torch_cann-<user>`",
            "records that `npu-smi` reads",
        ),
        Variable(
            "TORCH_CANN_SANITIZER",
            "0",
            "1: an access that no event orders after another stream's raises, `warn`: it warns: "
            "[stream sanitizer](device.md#stream-sanitizer)",
        ),
        Variable("TORCH_CANN_SIMULATE", "0", "1: events and streams keep the chip's time: [device time](simulator.md)"),
    ],
}

# Set by launchers and the system.
SET_BY_OTHERS = ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "RANK", "WORLD_SIZE", "XDG_RUNTIME_DIR")

# Why they change nothing -> names.
WITHOUT_EFFECT: dict[str, str] = {
    "there are no drivers, logs or kernel packages of CANN": "ACL_OP_COMPILER_CACHE_DIR ACL_OP_COMPILER_CACHE_MODE "
    "ACL_OP_INIT_MODE ASCEND_GLOBAL_EVENT_ENABLE ASCEND_GLOBAL_LOG_LEVEL ASCEND_HOME_PATH ASCEND_OPP_PATH "
    "ASCEND_PROCESS_LOG_PATH ASCEND_SLOG_PRINT_TO_STDOUT ASCEND_TOOLKIT_HOME ASCEND_VISIBLE_DEVICES GE_INIT_DISABLE "
    "NPU_DEVICE_LIMIT TORCH_ACL_INIT_CONFIG_PATH",
    "kernels run when they are called": "ACL_DEVICE_SYNC_TIMEOUT ACL_STREAM_TIMEOUT MULTI_STREAM_MEMORY_REUSE "
    "PER_STREAM_QUEUE",
    "kernels are the CPU's": "ACL_DUMP_DATA COMBINED_ENABLE INF_NAN_MODE_ENABLE INF_NAN_MODE_FORCE_DISABLE "
    "TORCH_NPU_FALLBACK_CPU_DISABLE TORCH_NPU_LAZY_FUSION TORCH_NPU_LEGACY_IMPL_LIST TORCH_NPU_USE_COMPATIBLE_IMPL "
    "bmmv2_enable",
    "ranks of one host share memory, hosts are joined by Gloo": "HCCL_DETERMINISTIC HCCL_IF_BASE_PORT "
    "HCCL_INTRA_PCIE_ENABLE HCCL_INTRA_ROCE_ENABLE HCCL_OP_EXPANSION_MODE HCCL_OP_RETRY_ENABLE "
    "HCCL_OP_RETRY_PARAMS HCCL_RDMA_RETRY_CNT HCCL_RDMA_SL HCCL_RDMA_TC HCCL_RDMA_TIMEOUT HCCL_SOCKET_FAMILY "
    "HCCL_WHITELIST_DISABLE HCCL_WHITELIST_FILE RANK_TABLE_FILE",
    "there is no watchdog thread: who waits sees failures": "HCCL_EVENT_TIMEOUT TORCH_HCCL_BLOCKING_WAIT "
    "TORCH_HCCL_COORD_CHECK_MILSEC TORCH_HCCL_DESYNC_DEBUG TORCH_HCCL_DUMP_ON_TIMEOUT TORCH_HCCL_ENABLE_MONITORING "
    "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC TORCH_HCCL_HIGH_PRIORITY TORCH_HCCL_STATUS_SAVE_ENABLE "
    "TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC TORCH_HCCL_ZERO_COPY",
}


def names_read() -> list[str]:
    return [variable.name for variables in READ.values() for variable in variables]
