#pragma once
// CANN_FAST_THREAD_LOCAL declares a thread-local variable on the path of every operator: it is addressed directly
// instead of through __tls_get_addr (1.5 % of a small operator). A library loaded with dlopen, as this one is,
// shares 1.6 KiB of such variables with all others (glibc's static TLS surplus), so use it for a few words only.
// Constant initialisers, no destructor.

#define CANN_FAST_THREAD_LOCAL thread_local constinit __attribute__((tls_model("initial-exec")))
