#pragma once
// Headers of every binding that take long to parse.

#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
