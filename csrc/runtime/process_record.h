#pragma once
// What this process holds of each card, in a small file that other processes may read: `npu-smi` shows it.
//
// The file is <Env::runtime_dir>/<pid>, mapped, so that keeping it up to date costs a store. It is removed at exit;
// readers remove those of processes that were killed. A card works as well where no file can be made. Thread-safe.

#include <cstddef>
#include <cstdint>

namespace cann::process_record {

// The file: this header, then a Card for each card the process sees. torch_cann/tools/_processes.py reads it.
struct Header {
  char magic[8];     // "CANNPROC"
  uint32_t version;  // 1
  uint32_t cards;    // how many follow
  uint64_t started;  // start of the process in clock ticks since boot, to tell a later process of the same id apart
  char soc[32];      // the chip's name, zero-terminated
};
struct Card {
  uint64_t physical_id;
  uint64_t capacity;  // bytes
  uint64_t used;      // bytes, as mem_get_info() counts
};

// Makes the file; called once, when the device is initialised.
void open();
// Notes that this process holds `bytes` of logical card `card`. Does nothing without a file, or in a forked child.
void set_used(int card, size_t bytes) noexcept;

}  // namespace cann::process_record
