#include "runtime/thread_state.h"

#include <c10/core/AutogradState.h>
#include <pthread.h>

#include "runtime/device.h"

namespace cann::detail {

CANN_FAST_THREAD_LOCAL bool t_thread_ready = false;

void prepare_thread() {
  lazy_init();
  // The flag of the forking thread is inherited by the child, which must come here again to be refused.
  [[maybe_unused]] static const int fork_handler = pthread_atfork(nullptr, nullptr, [] { t_thread_ready = false; });
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  t_thread_ready = true;
}

}  // namespace cann::detail
