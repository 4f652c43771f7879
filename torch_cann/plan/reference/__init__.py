"""The reference transformer program: what a Megatron-style trainer does on one NPU of one pipeline stage.

It is a program, not formulas: it issues operators and collectives on dry npu tensors, the caching allocator says what
fills HBM, and the device's clock says how long it takes. Weight gradients go to fp32 buffers, column-parallel layers
gather their input again in backward and overlap it, as Megatron does with sequence parallelism.

Activations are [tokens, hidden] with tokens = micro_batch * sequence / cp, over tp again where sequence parallelism is on.

From the bottom: ``weights``, ``attention`` and ``feedforward``, ``experts``, ``layers``, ``stage``.
"""
