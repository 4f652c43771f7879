"""Commands beside the device: npu-smi, the coverage of torch_npu's names."""
