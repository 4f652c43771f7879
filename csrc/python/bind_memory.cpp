// The caching allocators of HBM and of pinned host memory: statistics under PyTorch's key names, limits, raw blocks.

#include <array>
#include <string>
#include <utility>

#include "python/bindings.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/pinned_allocator.h"

namespace cann::python {
namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

template <typename Owner, typename Member>
struct Field {
  const char* name;
  Member Owner::*member;
};

constexpr Field<DeviceStats, StatArray> kPooledStats[] = {
    {"allocation", &DeviceStats::allocation},
    {"segment", &DeviceStats::segment},
    {"active", &DeviceStats::active},
    {"inactive_split", &DeviceStats::inactive_split},
    {"allocated_bytes", &DeviceStats::allocated_bytes},
    {"reserved_bytes", &DeviceStats::reserved_bytes},
    {"active_bytes", &DeviceStats::active_bytes},
    {"inactive_split_bytes", &DeviceStats::inactive_split_bytes},
    {"requested_bytes", &DeviceStats::requested_bytes},
};
constexpr Field<DeviceStats, Stat> kStats[] = {
    {"oversize_allocations", &DeviceStats::oversize_allocations},
    {"oversize_segments", &DeviceStats::oversize_segments},
};
constexpr Field<DeviceStats, int64_t> kCounters[] = {
    {"num_alloc_retries", &DeviceStats::num_alloc_retries},
    {"num_ooms", &DeviceStats::num_ooms},
    {"num_sync_all_streams", &DeviceStats::num_sync_all_streams},
    {"num_device_alloc", &DeviceStats::num_device_alloc},
    {"num_device_free", &DeviceStats::num_device_free},
    {"num_oom_rejections", &DeviceStats::num_oom_rejections},
    {"max_split_size", &DeviceStats::max_split_size},
};
constexpr Field<at::HostStats, Stat> kHostStats[] = {
    {"active_requests", &at::HostStats::active_requests},
    {"active_bytes", &at::HostStats::active_bytes},
    {"allocations", &at::HostStats::allocations},
    {"allocated_bytes", &at::HostStats::allocated_bytes},
};
constexpr Field<at::HostStats, DurationStat> kHostTimes[] = {
    {"host_alloc_time", &at::HostStats::host_alloc_time},
    {"host_free_time", &at::HostStats::host_free_time},
};
constexpr std::array<const char*, 3> kPools = {"all", "small_pool", "large_pool"};  // in the order of c10's StatType

py::object to_python(int64_t value) { return py::int_(value); }

py::object to_python(const Stat& stat) {
  py::dict dict;
  dict["current"] = stat.current;
  dict["peak"] = stat.peak;
  dict["allocated"] = stat.allocated;
  dict["freed"] = stat.freed;
  return dict;
}

py::object to_python(const StatArray& stats) {
  py::dict dict;
  for (size_t pool = 0; pool < kPools.size(); ++pool) dict[kPools[pool]] = to_python(stats[pool]);
  return dict;
}

py::object to_python(const DurationStat& stat) {
  py::dict dict;
  dict["total"] = stat.total;
  dict["max"] = stat.max;
  dict["min"] = stat.min;
  dict["count"] = stat.count;
  dict["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return dict;
}

template <typename Owner, typename Member, size_t N>
void add(py::dict& dict, const Owner& stats, const Field<Owner, Member> (&fields)[N]) {
  for (const auto& field : fields) dict[field.name] = to_python(stats.*field.member);
}

py::dict memory_stats(c10::DeviceIndex device) {
  const DeviceStats stats = caching_allocator::stats(checked_index(device));
  py::dict dict;
  add(dict, stats, kPooledStats);
  add(dict, stats, kStats);
  add(dict, stats, kCounters);
  py::dict pools;
  for (const auto& [id, reserved] : stats.reserved_bytes_by_private_pools) {
    pools[py::make_tuple(id.first, id.second)] = to_python(reserved);
  }
  dict["reserved_bytes_by_private_pools"] = pools;
  return dict;
}

py::dict host_memory_stats() {
  const at::HostStats stats = pinned_allocator()->get_stats();
  py::dict dict;
  add(dict, stats, kHostStats);
  add(dict, stats, kHostTimes);
  dict["num_host_alloc"] = stats.num_host_alloc;
  dict["num_host_free"] = stats.num_host_free;
  return dict;
}

void raw_delete(uintptr_t address) {
  auto* ptr = reinterpret_cast<void*>(address);
  TORCH_CHECK_VALUE(caching_allocator::block_of(ptr).first == ptr, "caching_allocator_delete() got ", ptr,
                    ", which is not the start of a block that caching_allocator_alloc() gave and that is still in use",
                    error_suffix(ErrModule::PTA, ErrCode::PTR));
  caching_allocator::free(ptr);
}

}  // namespace

void bind_memory(py::module_& m) {
  namespace allocator = caching_allocator;
  const auto device = py::arg("device");
  m.def("_npu_memoryStats", &memory_stats, device);
  m.def(
      "_npu_resetAccumulatedMemoryStats",
      [](c10::DeviceIndex index) { allocator::reset_accumulated_stats(checked_index(index)); }, device);
  m.def(
      "_npu_resetPeakMemoryStats", [](c10::DeviceIndex index) { allocator::reset_peak_stats(checked_index(index)); },
      device);
  m.def("_npu_emptyCache", &allocator::empty_cache, py::call_guard<py::gil_scoped_release>());
  m.def(
      "_npu_memoryInfo", [](c10::DeviceIndex index) { return allocator::memory_info(checked_index(index)); }, device);
  m.def(
      "_npu_setMemoryFraction",
      [](double fraction, c10::DeviceIndex index) { allocator::set_memory_fraction(fraction, checked_index(index)); },
      py::arg("fraction"), device);
  m.def(
      "_npu_getMemoryFraction", [](c10::DeviceIndex index) { return allocator::memory_fraction(checked_index(index)); },
      device);
  m.def("_npu_npuCachingAllocator_set_allocator_settings", &allocator::set_allocator_settings, py::arg("settings"));
  m.def(
      "_npu_npuCachingAllocator_raw_alloc",
      [](size_t bytes) { return reinterpret_cast<uintptr_t>(allocator::allocate(current_device(), bytes)); },
      py::arg("size"));
  m.def("_npu_npuCachingAllocator_raw_delete", &raw_delete, py::arg("mem_ptr"));
  m.def("_npu_getAllocatorBackend", [] { return "native"; });

  m.def("_npu_hostMemoryStats", &host_memory_stats);
  m.def("_npu_hostEmptyCache", [] { pinned_allocator()->empty_cache(); });
  m.def("_npu_resetAccumulatedHostMemoryStats", [] { pinned_allocator()->reset_accumulated_stats(); });
  m.def("_npu_resetPeakHostMemoryStats", [] { pinned_allocator()->reset_peak_stats(); });
}

}  // namespace cann::python
