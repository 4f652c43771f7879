#pragma once
// How an operator of namespace "npu" is declared: one row with its schema, its kernel and, where it has one, its
// derivative.
//
//   ops.add<"npu_swiglu", swiglu>("(Tensor input, int dim=-1) -> Tensor")
//       .autograd<swiglu_derivative, Saves<0>>();
//
// A kernel is a function over at::Tensor that knows no device. The row registers it three times: on PrivateUse1 to run
// on CPU aliases of the arguments with HBM for its allocations (as direct kernels do, aten/direct.h), on Meta as the
// shape function, and on AutogradPrivateUse1 through its derivative. An operator whose arithmetic reads data needs a
// shape function of its own: add<name, kernel, shape>.

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "aten/direct.h"
#include "aten/npu/arguments.h"
#include "aten/npu/derivative.h"

namespace cann::aten::npu {

// A string as a template argument.
template <size_t N>
struct FixedString {
  constexpr FixedString(const char (&text)[N]) { std::copy_n(text, N, value); }  // NOLINT(google-explicit-constructor)
  char value[N];
};

// "name.overload" as the dispatcher wants it.
template <FixedString Id>
struct OperatorId {
  static constexpr size_t kDot = std::string_view(Id.value).find('.');
  static constexpr auto kName = [] {
    std::array<char, sizeof(Id.value) + 5> text{"npu::"};
    const std::string_view id = std::string_view(Id.value).substr(0, kDot);
    std::copy(id.begin(), id.end(), text.begin() + 5);
    return text;
  }();
  static constexpr const char* name = kName.data();
  static constexpr const char* overload_name = kDot == std::string_view::npos ? "" : Id.value + kDot + 1;
};

// Calls operator `Id` through the dispatcher; `kKernel` gives the signature. This is how kernels and derivatives use
// one another, so that tracing and autocast see the operator and not its parts.
template <FixedString Id, auto kKernel>
struct Operator;

template <FixedString Id, class R, class... A, R (*kKernel)(A...)>
struct Operator<Id, kKernel> : OperatorId<Id> {
  static R call(A... args) {
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow(OperatorId<Id>::name, OperatorId<Id>::overload_name)
                                   .template typed<R(A...)>();
    return handle.call(static_cast<A&&>(args)...);
  }

  // "NpuSwigluBackward0", what a tensor's grad_fn is called.
  static std::string backward_name() {
    std::string camel;
    bool upper = true;
    for (const char c : std::string_view(Id.value)) {
      if (c == '_' || c == '.') {
        upper = true;
        continue;
      }
      camel.push_back(upper ? static_cast<char>(std::toupper(c)) : c);
      upper = false;
    }
    return camel + "Backward0";
  }

  // The kernel on npu tensors: on their CPU aliases, allocating from HBM, results handed back as npu tensors.
  static R hosted(A... args) {
    if (simulator::watching()) return observed<OperatorId<Id>, R, A...>(run, static_cast<A&&>(args)...);
    return run(static_cast<A&&>(args)...);
  }

 private:
  static R run(A... args) {
    AliasScope scope;
    std::tuple<ArgOf<A, std::is_void_v<R>>...> aliases{ArgOf<A, std::is_void_v<R>>(scope, static_cast<A&&>(args))...};
    scope.check_devices(Id.value);
    AllocationRedirect redirect(scope.device());
    return std::apply(
        [&](auto&... arg) -> R {
          if constexpr (std::is_void_v<R>) {
            kKernel(arg.get()...);
            scope.write_back();
          } else {
            decltype(auto) result = kKernel(arg.get()...);
            scope.write_back();
            return Result<R>::wrap(scope, static_cast<R&&>(result));
          }
        },
        aliases);
  }
};

// The libraries that rows register into, of namespace "npu" but for one.
struct Libraries {
  torch::Library& schemas;
  torch::Library& atb_schemas;  // namespace "atb", of which operators are only refused
  torch::Library* npu;          // none in a dry run, whose kernel for everything runs shape functions
  torch::Library& meta;
  torch::Library& autograd;
  torch::Library& autocast;
};

// Whether an operator draws from the generator: compilers must neither merge nor repeat its calls.
enum class Randomness { kNone, kDraws };

class Registry {
 public:
  explicit Registry(Libraries libraries) : libraries_(libraries) {}

  // One operator that has been added; what may follow add().
  template <FixedString Id, auto kKernel>
  class Row {
   public:
    explicit Row(Libraries& libraries) : libraries_(libraries) {}

    // Gradients by `kDerivative`; see derivative.h for its form, for what is saved and which outputs have gradients.
    template <auto kDerivative, class SavedInputs, class SavedOutputs = Saves<>, class Outputs = Saves<0>>
    Row& autograd() {
      return autograd_by<
          Differentiable<Operator<Id, kKernel>, kKernel, kDerivative, SavedInputs, SavedOutputs, Outputs>::call>();
    }
    // The same with an autograd kernel of its own.
    template <auto kAutogradKernel>
    Row& autograd_by() {
      libraries_.autograd.impl(Id.value, TORCH_FN(kAutogradKernel));
      return *this;
    }
    // Under autocast, floating tensors enter in the lower precision (products, convolutions, attention).
    Row& autocast_lower() {
      libraries_.autocast.impl(Id.value, TORCH_FN((Autocast<kKernel, true>::call)));
      return *this;
    }
    // Under autocast, 16-bit tensors enter as float32 (losses).
    Row& autocast_float32() {
      libraries_.autocast.impl(Id.value, TORCH_FN((Autocast<kKernel, false>::call)));
      return *this;
    }

   private:
    template <auto, bool kLower>
    struct Autocast;
    template <class R, class... A, R (*kFunction)(A...), bool kLower>
    struct Autocast<kFunction, kLower> {
      static R call(A... args) {
        c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
        const auto type = kLower ? at::autocast::get_autocast_dtype(kNPU) : at::kFloat;
        return Operator<Id, kKernel>::call(cast_for_autocast<kLower>(type, args)...);
      }
    };

    Libraries& libraries_;
  };

  // `signature` is the schema behind the operator's name.
  template <FixedString Id, auto kKernel, auto kShape = kKernel>
  Row<Id, kKernel> add(const char* signature) {
    define(Id.value, signature);
    if (libraries_.npu != nullptr) libraries_.npu->impl(Id.value, TORCH_FN((Operator<Id, kKernel>::hosted)));
    libraries_.meta.impl(Id.value, TORCH_FN(kShape));
    return Row<Id, kKernel>(libraries_);
  }

  // An operator that acts on npu tensors themselves rather than on CPU aliases of them: storage formats, addresses, or
  // a composition of other operators.
  template <FixedString Id, auto kKernel, auto kShape = kKernel>
  Row<Id, kKernel> add_native(const char* signature, Randomness randomness = Randomness::kNone) {
    define(Id.value, signature, randomness);
    if (libraries_.npu != nullptr) libraries_.npu->impl(Id.value, TORCH_FN(kKernel));
    libraries_.meta.impl(Id.value, TORCH_FN(kShape));
    return Row<Id, kKernel>(libraries_);
  }

  // An operator that is a composition of others for every device, autograd and tracing included, or that has no tensor
  // argument to find its device by.
  template <FixedString Id, auto kKernel>
  void add_composite(const char* signature) {
    define(Id.value, signature);
    libraries_.schemas.impl(
        Id.value, torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, torch::CppFunction(TORCH_FN(kKernel))));
  }

  // An operator that is known by name only: calling it raises NotImplementedError saying what it would need. `id` may
  // begin with "atb::".
  void refuse(const char* id, const char* signature, const char* needs);

 private:
  void define(const char* id, const char* signature, Randomness randomness = Randomness::kNone);

  Libraries libraries_;
};

}  // namespace cann::aten::npu
