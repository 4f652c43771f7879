"""Recipes: ready-made parts of training scripts, on top of PyTorch's own. Also importable as ``cann.recipes``."""
