#pragma once
// Lets the user's Ctrl-C end a wait for peers. Thread-safe. No torch here.

namespace cann::hccl {

// Raises whatever shall end the wait of the calling thread, if anything shall.
using InterruptCheck = void (*)();

// What check_interrupt() calls from here on; nullptr at first: nothing. Must be callable from every thread.
void set_interrupt_check(InterruptCheck check);

// Blocking waits call this several times a second, without locks.
void check_interrupt();

}  // namespace cann::hccl
