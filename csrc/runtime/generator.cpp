#include "runtime/generator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <deque>
#include <memory>

#include "runtime/errors.h"
#include "sim/env.h"

namespace cann {
namespace {

constexpr c10::DeviceIndex kMaxCards = sim::Env::kMaxDeviceCount;
constexpr int64_t kStateBytes = 16;
// What one operator consumes. CUDA's generator advances in multiples of 4 too, which DTensor's offset arithmetic
// expects.
constexpr uint64_t kOffsetStep = 4;

// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): every bit of the
// input reaches every bit of the output, so neighbouring offsets give unrelated seeds.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// MurmurHash3's 32-bit finaliser (Appleby, 2011, public domain).
constexpr uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

// The whole state of a Mersenne twister from a key, word by word and so in SIMD: seeding it the usual way takes 1.4 us,
// as much as a small operator, and a second pass over the state before the first number.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
void fill_twister(uint32_t* state, uint64_t key) {
  const auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < at::MERSENNE_STATE_N; ++i) state[i] = mix32(mix32(low + i * 0x9e3779b9U) ^ high);
}

// What a thread reuses from one random operator to the next; on the heap, since thread-local memory is scarce here
// (runtime/thread_local.h).
struct HostGenerator {
  at::Generator generator;
  at::mt19937 engine;
};

// A CPU generator at the start of the stream of `key`. The thread's own is reused as long as no kernel kept it.
at::Generator host_generator_for(uint64_t key) {
  thread_local const auto own = std::make_unique<HostGenerator>();
  auto& generator = own->generator;
  if (!generator.defined() || generator.getIntrusivePtr().use_count() > 1) {
    generator = at::make_generator<at::CPUGeneratorImpl>();
  }
  at::mt19937_data_pod data;
  data.seed_ = key;
  data.seeded_ = true;
  data.left_ = at::MERSENNE_STATE_N;
  data.next_ = 0;
  fill_twister(data.state_.data(), key);
  own->engine.set_data(data);
  auto* impl = static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  impl->set_engine(own->engine);
  impl->set_next_float_normal_sample(std::nullopt);
  impl->set_next_double_normal_sample(std::nullopt);
  return generator;
}

}  // namespace

NPUGeneratorImpl::NPUGeneratorImpl(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(kNPU, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<State>()) {}

void NPUGeneratorImpl::set_current_seed(uint64_t seed) { *state_ = {.seed = seed, .offset = 0}; }

uint64_t NPUGeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(/*is_cuda=*/true));
  return state_->seed;
}

void NPUGeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK_VALUE(offset % kOffsetStep == 0, "the offset of an npu generator must be a multiple of 4, but got ",
                    offset, error_suffix(ErrModule::PTA, ErrCode::VALUE));
  state_->offset = offset;
}

void NPUGeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "the state of an npu generator is ", kStateBytes,
              " bytes (seed, offset), but got ", state.numel(), error_suffix(ErrModule::PTA, ErrCode::VALUE));
  uint64_t words[2];
  std::memcpy(words, state.data(), sizeof words);
  set_offset(words[1]);  // may refuse
  state_->seed = words[0];
}

c10::intrusive_ptr<c10::TensorImpl> NPUGeneratorImpl::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  const uint64_t words[2] = {state_->seed, state_->offset};
  std::memcpy(state.data_ptr(), words, sizeof words);
  return state.getIntrusivePtr();
}

std::pair<uint64_t, uint64_t> NPUGeneratorImpl::take() {
  const std::lock_guard lock(mutex_);
  const uint64_t offset = state_->offset;
  state_->offset += kOffsetStep;
  return {state_->seed, offset};
}

at::Generator NPUGeneratorImpl::next() {
  const auto [seed, offset] = take();
  return host_generator_for(mix(seed + 0x9e3779b97f4a7c15ULL * (offset / kOffsetStep + 1)));
}

NPUGeneratorImpl* NPUGeneratorImpl::clone_impl() const {
  auto* copy = new NPUGeneratorImpl(device().index());
  *copy->state_ = *state_;
  return copy;
}

c10::intrusive_ptr<c10::GeneratorImpl> NPUGeneratorImpl::graphsafe_get_state() const {
  auto view = c10::make_intrusive<NPUGeneratorImpl>(device().index());
  view->state_ = state_;
  return view;
}

void NPUGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* from = dynamic_cast<const NPUGeneratorImpl*>(other.get());
  TORCH_CHECK_TYPE(from != nullptr, "an npu generator can only share the state of another, but got one of ",
                   other ? other->device().str() : "nothing", error_suffix(ErrModule::PTA, ErrCode::TYPE));
  state_ = from->state_;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  // For every card there could be, since torch.manual_seed() must not initialise the device and so fix which are
  // visible. Never destroyed: random operators may still run in threads at exit.
  static auto& generators = *[] {
    auto* all = new std::deque<at::Generator>;
    for (c10::DeviceIndex i = 0; i < kMaxCards; ++i) {
      all->push_back(at::make_generator<NPUGeneratorImpl>(i));
    }
    return all;
  }();
  return generators[checked_index(device)];
}

at::Generator host_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const at::Generator& source = generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(source.device().type() == kNPU, "Expected a 'npu' device type for generator but found '",
              source.device().type(), "'");
  TORCH_CHECK(source.device().index() == device, "Expected a generator of npu:", static_cast<int>(device),
              ", the device of the tensor, but found one of ", source.device());
  return static_cast<NPUGeneratorImpl*>(source.unsafeGetGeneratorImpl())->next();
}

}  // namespace cann
