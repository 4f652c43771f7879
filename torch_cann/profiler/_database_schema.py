"""Tables of the database files, by the names that MindStudio's documentation of CANN 8.5 gives them.

ascend_pytorch_profiler_<rank>.db has times in ns since 1970 and sizes in bytes; texts are numbers in STRING_IDS. analysis.db
has what the tables and communication files in text form have, in their units.
"""

# Table -> its columns. A column without a type holds whole numbers.
PROFILE = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "SESSION_TIME_INFO": "startTimeNs, endTimeNs",
    "NPU_INFO": "id, name TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "RANK_DEVICE_MAP": "rankId, deviceId",
    "META_DATA": "name TEXT, value TEXT",
    "STEP_TIME": "id, startNs, endNs",
    "PYTORCH_API": "startNs, endNs, globalTid, connectionId, name, sequenceNumber, fwdThreadId, inputDtypes, inputShapes, "
    "callchainId, type",
    "PYTORCH_CALLCHAINS": "id, stack, stackDepth",
    "CONNECTION_IDS": "id, connectionId",
    "TASK": "startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, taskId, modelId",
    "COMPUTE_TASK_INFO": "name, globalTaskId, blockDim, mixBlockDim, taskType, opType, inputFormats, inputDataTypes, "
    "inputShapes, outputFormats, outputDataTypes, outputShapes, attrInfo, opState, hf32Eligible",
    "COMMUNICATION_TASK_INFO": "name, globalTaskId, taskType, planeId, groupName, notifyId, rdmaType, srcRank, dstRank, "
    "transportType, size, dataType, linkType, opId, isMaster, bandwidth NUMERIC",
    "COMMUNICATION_OP": "opName, startNs, endNs, connectionId, groupName, opId, relay, retry, dataType, algType, "
    "count NUMERIC, opType, deviceId",
    "MEMORY_RECORD": "component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId",
    "OP_MEMORY": "name, size, allocationTime, releaseTime, activeReleaseTime, duration, activeDuration, "
    "allocationTotalAllocated, allocationTotalReserved, allocationTotalActive, releaseTotalAllocated, "
    "releaseTotalReserved, releaseTotalActive, streamPtr, deviceId",
    **dict.fromkeys(
        (
            "ENUM_API_TYPE",
            "ENUM_HCCL_DATA_TYPE",
            "ENUM_HCCL_LINK_TYPE",
            "ENUM_HCCL_TRANSPORT_TYPE",
            "ENUM_HCCL_RDMA_TYPE",
        ),
        "id INTEGER PRIMARY KEY, name TEXT",
    ),
}
# What makes joins of tools quick.
INDEXES = {"TaskIndex": "TASK (startNs, globalTaskId)", "ComputeTaskIndex": "COMPUTE_TASK_INFO (globalTaskId)"}

ANALYSIS = {
    "StepTraceTime": "deviceId, step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, overlapped NUMERIC, "
    "communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC, "
    "communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC",
    "CommAnalyzerTime": "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, "
    "transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC, step TEXT, type TEXT",
    "CommAnalyzerBandwidth": "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, "
    "transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC, "
    "total_duration NUMERIC, step TEXT, type TEXT",
    "CommAnalyzerMatrix": "hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, transport_type TEXT, "
    "transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC, step TEXT, type TEXT, op_name TEXT",
}

SCHEMA_VERSION = (1, 1, 0)
NOT_THERE = 65534  # "N/A" of every enumeration of HCCL
UNSET = 2**32 - 1  # a number that hardware would know


def _numbered(names: str) -> dict[int, str]:
    """An enumeration of HCCL, which all end alike."""
    return {**dict(enumerate(names.split())), 255: "RESERVED", NOT_THERE: "N/A", 65535: "INVALID_TYPE"}


API_TYPES = {
    20000: "acl", 15000: "model", 10000: "node", 5500: "communication", 5000: "runtime", 50001: "op", 50002: "queue",
    50003: "trace", 50004: "mstx",
}  # fmt: skip
OP, PYTHON_TRACE = 50001, 50003
ENUMERATIONS = {
    "ENUM_API_TYPE": API_TYPES,
    "ENUM_HCCL_DATA_TYPE": _numbered("INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128"),
    "ENUM_HCCL_LINK_TYPE": _numbered("ON_CHIP HCCS PCIE ROCE SIO HCCS_SW STANDARD_ROCE"),
    "ENUM_HCCL_TRANSPORT_TYPE": _numbered("SDMA RDMA LOCAL"),
    "ENUM_HCCL_RDMA_TYPE": _numbered("RDMA_SEND_NOTIFY RDMA_SEND_PAYLOAD"),
}

# Names of c10 -> numbers in ENUM_HCCL_DATA_TYPE.
DATA_TYPES = {
    "Char": 0, "Short": 1, "Int": 2, "Half": 3, "Float": 4, "Long": 5, "UInt64": 6, "Byte": 7, "UInt16": 8, "UInt32": 9,
    "Double": 10, "BFloat16": 11,
}  # fmt: skip
# Links -> numbers in ENUM_HCCL_TRANSPORT_TYPE and ENUM_HCCL_LINK_TYPE.
LINKS = {"HCCS": (0, 1), "RDMA": (1, 3)}
