#pragma once
// How a family of kernels names its instances: kernels::<instruction set>::<name>, one per compilation of its source.

#if defined(__x86_64__)
#define CANN_DECLARE_KERNELS(type, name) \
  namespace baseline {                   \
  extern const type name;                \
  }                                      \
  namespace avx2 {                       \
  extern const type name;                \
  }                                      \
  namespace avx512 {                     \
  extern const type name;                \
  }
#else
#define CANN_DECLARE_KERNELS(type, name) \
  namespace baseline {                   \
  extern const type name;                \
  }
#endif
