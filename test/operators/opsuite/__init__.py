"""Compares a device with the stock CPU device over every operator of PyTorch's OpInfo database.

The package is split by question: which inputs (``cases``), how they reach a device (``transfer``), what "equal" means
(``compare``), what is tried (``checks``), which differences are known (``exceptions``), and how it all survives a
crashing kernel (``worker`` in a process of its own, driven by ``pool``).
"""
