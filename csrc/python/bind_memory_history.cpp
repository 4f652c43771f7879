// Snapshot and history of the caching allocator, in the form that torch.cuda.memory._snapshot() documents and that
// PyTorch's memory viewer reads.

#include <torch/csrc/profiler/combined_traceback.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "runtime/caching_allocator.h"

// Declared here because its own header needs nlohmann/json, which the wheel does not ship.
namespace torch {
std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}

namespace cann::python {
namespace {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using torch::CapturedTraceback;

std::shared_ptr<c10::GatheredContext> gather_python() { return CapturedTraceback::gather(true, true, false); }
std::shared_ptr<c10::GatheredContext> gather_all() { return CapturedTraceback::gather(true, true, true); }

// Turns captured stacks into lists of frames, all in one call because symbolising shares work between stacks.
class Frames {
 public:
  // `target["frames"]` becomes the list of frames of `context`, empty without one.
  void want(py::dict target, const std::shared_ptr<c10::GatheredContext>& context) {
    target["frames"] = py::list();
    if (auto traceback = std::dynamic_pointer_cast<CapturedTraceback>(context)) {
      wanted_.emplace_back(std::move(target), std::move(traceback));
    }
  }
  void resolve() {
    std::vector<CapturedTraceback*> tracebacks;
    for (const auto& [target, traceback] : wanted_) tracebacks.push_back(traceback.get());
    const auto frames = torch::py_symbolize(tracebacks);
    for (size_t i = 0; i < wanted_.size(); ++i) wanted_[i].first["frames"] = frames[i];
  }

 private:
  std::vector<std::pair<py::dict, std::shared_ptr<CapturedTraceback>>> wanted_;
};

const char* state_of(const BlockInfo& block) {
  if (block.allocated) return "active_allocated";
  return block.active ? "active_pending_free" : "inactive";
}

py::list to_python(const std::vector<BlockInfo>& blocks, size_t address, Frames& frames) {
  py::list list;
  for (const BlockInfo& block : blocks) {
    py::dict dict;
    dict["address"] = address;
    dict["size"] = block.size;
    dict["requested_size"] = block.requested_size;
    dict["state"] = state_of(block);
    frames.want(dict, block.context_when_allocated);
    list.append(dict);
    address += block.size;
  }
  return list;
}

py::dict to_python(const SegmentInfo& segment, Frames& frames) {
  py::dict dict;
  dict["device"] = segment.device;
  dict["address"] = segment.address;
  dict["total_size"] = segment.total_size;
  dict["allocated_size"] = segment.allocated_size;
  dict["active_size"] = segment.active_size;
  dict["requested_size"] = segment.requested_size;
  dict["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
  dict["segment_type"] = segment.is_large ? "large" : "small";
  dict["segment_pool_id"] = segment.owner_private_pool_id;
  dict["is_expandable"] = segment.is_expandable;
  frames.want(dict, segment.context_when_allocated);
  dict["blocks"] = to_python(segment.blocks, segment.address, frames);
  return dict;
}

const char* name_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::SEGMENT_MAP:
      return "segment_map";
    case TraceEntry::SEGMENT_UNMAP:
      return "segment_unmap";
    case TraceEntry::SNAPSHOT:
      return "snapshot";
    case TraceEntry::OOM:
      return "oom";
  }
  return "unknown";
}

py::dict to_python(const TraceEntry& entry, Frames& frames) {
  py::dict dict;
  dict["action"] = name_of(entry.action_);
  dict[entry.action_ == TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
  dict["size"] = entry.size_;
  dict["stream"] = reinterpret_cast<uintptr_t>(entry.stream_);
  dict["time_us"] = entry.time_.t_;
  frames.want(dict, entry.context_);
  return dict;
}

// {"segments": [...], "device_traces": [[...] per card], "allocator_settings": {}, "external_annotations": []}
py::dict memory_snapshot() {
  Frames frames;
  py::list segments;
  for (const SegmentInfo& segment : caching_allocator::snapshot()) segments.append(to_python(segment, frames));
  py::list traces;
  for (const auto& history : caching_allocator::trace()) {
    py::list entries;
    for (const TraceEntry& entry : history) entries.append(to_python(entry, frames));
    traces.append(entries);
  }
  frames.resolve();
  py::dict dict;
  dict["segments"] = segments;
  dict["device_traces"] = traces;
  dict["allocator_settings"] = py::dict();
  dict["external_annotations"] = py::list();
  return dict;
}

}  // namespace

void bind_memory_history(py::module_& m) {
  py::enum_<RecordContext>(m, "_RecordContext")
      .value("NEVER", RecordContext::NEVER)
      .value("STATE", RecordContext::STATE)
      .value("ALLOC", RecordContext::ALLOC)
      .value("ALL", RecordContext::ALL);
  m.def("_npu_memorySnapshot", &memory_snapshot);
  m.def(
      "_npu_record_memory_history",
      [](bool enabled, RecordContext when, bool cpp_stacks, size_t max_entries) {
        caching_allocator::record_history(enabled, cpp_stacks ? &gather_all : &gather_python, max_entries, when);
      },
      py::arg("enabled"), py::arg("when"), py::arg("cpp_stacks"), py::arg("max_entries"));
  m.def("_npu_isHistoryEnabled", &caching_allocator::is_history_enabled);
}

}  // namespace cann::python
