"""torch_npu.contrib: helpers beside the device."""
