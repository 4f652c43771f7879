#pragma once
// What an operator takes on the device: its time on the engine that limits it, from its name and its tensors' shapes.
//
// An operator runs on the cube cores (products), on the vector cores (everything else) or as a copy; it takes
// max(arithmetic / rate, bytes / bandwidth) plus a launch. Rates come from the chip's table (soc.toml), where each is
// published, measured by others or marked as an estimate. Not modelled: reuse of L2 between operators, arithmetic of
// vector operators (all are taken to be bound by memory), formats (ND and NZ), sparsity in the values.
// Torch-free, immutable, thread-safe. One cost() takes 0.1 to 0.3 us; callers keep results by operator and shapes.

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/soc.h"
#include "sim/topology.h"

namespace cann::sim {

enum class Dtype : uint8_t { kFloat32, kFloat16, kBFloat16, kInt8, kOther };

struct TensorDesc {
  std::span<const int64_t> sizes;
  Dtype dtype = Dtype::kOther;
  int64_t bytes = 0;  // of its elements, not of its storage

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }
};

struct OperatorDesc {
  std::string_view name;                     // without namespace and overload: "mm", "add_", "npu_rms_norm"
  std::span<const TensorDesc> inputs = {};   // in the order of the schema, undefined ones left out
  std::span<const TensorDesc> outputs = {};  // new tensors and those written in place
  bool pointwise = false;
  // Share of the query-key pairs that attention computes: 0.5 when causal, less with a window.
  double density = 1.0;
  // How attention's tensors are laid out ("BSH", "SBH", "BSND", "TND"; BNSD if empty), and into how many heads H falls.
  std::string_view layout = {};
  int64_t heads = 1;
  // Of operators that hold a collective (npu_mm_reduce_scatter_base ...): the group's ranks, all in one mesh.
  int world = 1;
};

enum class Engine : uint8_t { kNone, kCube, kVector, kCopy, kCollective };
const char* name_of(Engine engine);

struct Cost {
  Engine engine = Engine::kVector;
  bool modelled = true;  // false: the operator is not in the table, and was costed as if bound by memory
  double us = 0;         // device time, launch included
  double flops = 0;      // of the cube unit
  double bytes = 0;      // read and written
};

class CostModel {
 public:
  // Both must outlive this.
  CostModel(const Soc& soc, const Topology& topology) : soc_(soc), topology_(topology) {}

  Cost cost(const OperatorDesc& op) const;

  // A batch of products [m, k] x [k, n], microseconds. Counts tiles of 128 x 256 (or 128 x 128) in whole waves over the
  // cube cores, the depth k, and reading the smaller operand again when it exceeds L2.
  double matmul_us(double m, double n, double k, double batch, Dtype dtype) const;
  // Bytes read and written by vector cores in `kernels` launches.
  double vector_us(double bytes, double kernels = 1) const;
  double host_to_device_us(double bytes) const;
  double device_to_host_us(double bytes) const;

 private:
  double peak(Dtype dtype) const;  // operations per microsecond
  Cost products(const OperatorDesc& op, size_t first, bool linear_weight) const;
  Cost convolution(const OperatorDesc& op, bool backward) const;
  Cost attention(const OperatorDesc& op, size_t query, bool backward) const;
  Cost product_with_collective(const OperatorDesc& op, bool gather) const;

  const Soc& soc_;
  const Topology& topology_;
};

}  // namespace cann::sim
