"""Tells torch_cann that this torch_npu package is its own, not the real one (see torch_cann/_preflight.py)."""
