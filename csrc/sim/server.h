#pragma once
// The simulated server of this process: its chip, its visible cards and their HBM.
//
// Server::get() builds it once, from Env, at first use ("device initialisation"); it is never destroyed, since tensors
// may be freed after static destructors ran. visible_card_count() may be asked before that without initialising
// anything. Thread-safe.

#include <vector>

#include "sim/hbm.h"
#include "sim/soc.h"

namespace cann::sim {

class Server {
 public:
  // Initialises on first call. Throws std::invalid_argument for a malformed environment or an unknown chip,
  // std::runtime_error when no card is visible, std::system_error when the HBM's addresses cannot be reserved; the next
  // call then tries again.
  static Server& get();
  // Whether get() succeeded in this process or in an ancestor it was forked from.
  static bool initialized();

  // Number of cards that this process sees: those of Env::device_count that ASCEND_RT_VISIBLE_DEVICES names.
  // Follows the environment until initialised, fixed afterwards. Throws std::invalid_argument as Env::get() does.
  static int visible_card_count();

  const Soc& soc() const { return soc_; }
  int card_count() const { return static_cast<int>(physical_ids_.size()); }
  // Physical id of logical card `card` (0 <= card < card_count()).
  int physical_id(int card) const { return physical_ids_[static_cast<size_t>(card)]; }
  Hbm& hbm() { return hbm_; }
  // Hbm::share(), unless the environment forbids it. Whether it is shared now.
  bool share_hbm();

  // HBM the driver and the runtime keep on every card, outside the caching allocator's reach, in bytes.
  // Makes mem_get_info() free < total from the first moment, as on hardware.
  static constexpr size_t kContextBytes = size_t{64} << 20;

 private:
  Server();
  const Soc& soc_;
  std::vector<int> physical_ids_;
  Hbm hbm_;
};

}  // namespace cann::sim
