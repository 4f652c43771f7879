#pragma once
// Memory that other processes of this user can map: an anonymous file, never a name that another process could guess.

#include <cstddef>

namespace cann::sim {

// A descriptor of a new memfd of `bytes` zeros, owned by the caller: readable by this user alone, closed by exec(), and
// sparse, so that it costs nothing until touched. Its size is sealed: a peer that truncated it would make its users die
// of SIGBUS. `name` is what /proc shows. Throws std::system_error.
int make_memfd(const char* name, size_t bytes);

}  // namespace cann::sim
