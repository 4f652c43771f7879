// Precompiled: the torch headers that every operator file needs, parsed once per build instead of once per file.
#include <ATen/ATen.h>
#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
