#pragma once
// Random numbers of a card: a counter-based state of 16 bytes, 8 of seed and 8 of offset, as DTensor and activation
// checkpointing read and write it.
//
// A random operator draws from a CPU generator seeded by a mix of (seed, offset), then advances the offset by 4. Equal
// states give equal numbers on every card and machine; the streams differ from the CPU device's, as on hardware.
// GeneratorImpl::mutex_ guards the state.

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <utility>

#include "runtime/device.h"

namespace cann {

class NPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit NPUGeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;                   // takes a non-deterministic seed and returns it
  void set_offset(uint64_t offset) override;  // raises ValueError unless a multiple of 4
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The CPU generator for one operator; the offset has been advanced. Locks the state while it does so. The caller
  // owns the result.
  at::Generator next();
  // The (seed, offset) one operator draws its numbers from when it has a generator of its own; the offset has been
  // advanced. Locks the state while it does so.
  std::pair<uint64_t, uint64_t> take();

  static c10::DeviceType device_type() { return kNPU; }

 private:
  NPUGeneratorImpl* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);

// The CPU generator an operator on `device` draws from: of `generator`, or of the card's default one when absent.
// Raises RuntimeError when `generator` belongs to another device type or card.
at::Generator host_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace cann
