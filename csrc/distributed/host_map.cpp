#include "distributed/host_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cann::hccl {

HostMap::HostMap(Hosts hosts, int rank) : hosts_(std::move(hosts)), rails_(hosts_.at(0).size()) {
  size_t most = 0;
  for (const auto& ranks : hosts_) {
    ranks_ += ranks.size();
    rails_ = std::min(rails_, ranks.size());
    most = std::max(most, ranks.size());
  }
  waves_ = (most + rails_ - 1) / rails_;
  const Seat seat = seat_of(rank);
  host_ = seat.host;
  place_ = seat.place;
}

HostMap::Seat HostMap::seat_of(int rank) const {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    const auto found = std::find(hosts_[host].begin(), hosts_[host].end(), rank);
    if (found != hosts_[host].end()) return {host, static_cast<size_t>(found - hosts_[host].begin())};
  }
  throw std::invalid_argument(fmt::format("rank {} is on no host", rank));
}

std::vector<Span> HostMap::of_this_host(const std::vector<Span>& spans) const {
  std::vector<Span> result;
  for (const int rank : hosts_[host_]) result.push_back(spans[static_cast<size_t>(rank)]);
  return result;
}

Span HostMap::carried(size_t host, size_t place, size_t wave, const std::vector<Span>& spans) const {
  const size_t served = place + wave * rails_;
  if (place >= rails_ || served >= hosts_[host].size()) return {};
  return spans[static_cast<size_t>(hosts_[host][served])];
}

std::vector<Span> HostMap::carried_for(size_t host, size_t wave, const std::vector<Span>& spans) const {
  std::vector<Span> result;
  for (size_t place = 0; place < ranks_here(); ++place) result.push_back(carried(host, place, wave, spans));
  return result;
}

std::vector<Span> HostMap::on_this_rail(size_t wave, const std::vector<Span>& spans) const {
  std::vector<Span> result;
  for (size_t host = 0; host < hosts_.size(); ++host) result.push_back(carried(host, place_, wave, spans));
  return result;
}

std::string HostMap::describe() const {
  std::string text = fmt::format("ranks {} of this host", fmt::join(hosts_[host_], ", "));
  if (place_ >= rails_) return text;
  std::vector<int> rail;
  for (const auto& ranks : hosts_) rail.push_back(ranks[place_]);
  return text + fmt::format(" or ranks {} across hosts", fmt::join(rail, ", "));
}

}  // namespace cann::hccl
