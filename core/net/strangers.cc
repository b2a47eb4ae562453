#include "core/net/strangers.h"

#include <algorithm>

namespace fluvial::net {

Strangers::Arrival Strangers::arrive(const AddressKey& address, TimePoint now) {
  Arrival arrival;
  const auto here = counts_.find(address);
  const bool is_address_full = here != counts_.end() && here->second >= per_address_max_;
  if (is_address_full || strangers_.size() >= all_max_) {
    arrival.gives_way = stillest_of(is_address_full ? address : largest());
    if (!arrival.gives_way || now - strangers_.at(*arrival.gives_way).still_since < kPatience) return {};
    left(*arrival.gives_way);
  }
  arrival.ticket = ++last_;
  strangers_.emplace(last_, Stranger{address, now});
  ++counts_[address];
  return arrival;
}

void Strangers::moved(Ticket ticket, TimePoint now) {
  const auto found = strangers_.find(ticket);
  if (found != strangers_.end() && ++found->second.moves <= kMovesCounted) found->second.still_since = now;
}

void Strangers::left(Ticket ticket) {
  const auto found = strangers_.find(ticket);
  if (found == strangers_.end()) return;
  const auto count = counts_.find(found->second.address);
  if (--count->second == 0) counts_.erase(count);
  strangers_.erase(found);
}

std::optional<Strangers::Ticket> Strangers::stillest_of(const AddressKey& address) const {
  auto stillest = strangers_.end();
  for (auto each = strangers_.begin(); each != strangers_.end(); ++each) {
    if (each->second.address != address) continue;
    if (stillest == strangers_.end() || each->second.still_since < stillest->second.still_since) stillest = each;
  }
  return stillest == strangers_.end() ? std::nullopt : std::optional(stillest->first);
}

AddressKey Strangers::largest() const {
  const auto most = std::ranges::max_element(counts_, {}, [](const auto& count) { return count.second; });
  return most == counts_.end() ? AddressKey{} : most->first;
}

}  // namespace fluvial::net
