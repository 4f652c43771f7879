#pragma once
// Random numbers of a card: a counter-based state of 16 bytes, 8 of seed and 8 of offset, as DTensor and activation
// checkpointing read and write it.
//
// A random operator draws from a CPU generator seeded by a mix of (seed, offset), then advances the offset by 4. Equal
// states give equal numbers on every card and machine; the streams differ from the CPU device's, as on hardware.
// GeneratorImpl::mutex_ guards the state.
//
// Generators can share one state, as CUDA's can: graphsafe_get_state() makes another generator over this one's state,
// graphsafe_set_state() takes over that of the other, and whatever one draws the others have drawn too. Compiled graphs
// pass such generators to replay dropout in a checkpointed backward. clone() copies the state. Generators that share a
// state share no lock: use them from one thread at a time.

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <utility>

#include "runtime/device.h"

namespace cann {

class NPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit NPUGeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return state_->seed; }
  uint64_t seed() override;                   // takes a non-deterministic seed and returns it
  void set_offset(uint64_t offset) override;  // raises ValueError unless a multiple of 4
  uint64_t get_offset() const override { return state_->offset; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  // Raises TypeError unless `other` is an npu generator.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;

  // The CPU generator for one operator; the offset has been advanced. Locks the state while it does so. The caller
  // owns the result.
  at::Generator next();
  // The (seed, offset) one operator draws its numbers from when it has a generator of its own; the offset has been
  // advanced. Locks the state while it does so.
  std::pair<uint64_t, uint64_t> take();

  static c10::DeviceType device_type() { return kNPU; }

 private:
  struct State {
    uint64_t seed = c10::default_rng_seed_val;
    uint64_t offset = 0;
  };

  NPUGeneratorImpl* clone_impl() const override;

  std::shared_ptr<State> state_;  // never null
};

const at::Generator& default_generator(c10::DeviceIndex device);

// The CPU generator an operator on `device` draws from: of `generator`, or of the card's default one when absent.
// Raises RuntimeError when `generator` belongs to another device type or card.
at::Generator host_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace cann
