"""Recipes for training large models: ``cann.recipes.train``."""
