// Connections that have not proved to be a member's, and who goes when there are too many: the one that has been still
// for the longest. So a newcomer gets in however many are held open; only who moves slower than the others arrive
// loses.
//
// At the bound of its address a newcomer takes the place of one of that address; at the bound of all, of the address
// that has most. Nobody goes who moved within kPatience: in a crowd of honest ones, none of which is still, the
// newcomer is refused and comes again. Pure: the time is passed in. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "core/net/address.h"

namespace fluvial::net {

class Strangers {
 public:
  using Ticket = std::uint64_t;
  static constexpr Duration kPatience = std::chrono::milliseconds(250);
  static constexpr int kMovesCounted = 3;  // a handshake has two; who goes on and on buys no time with it

  Strangers(std::size_t all_max, std::size_t per_address_max) : all_max_(all_max), per_address_max_(per_address_max) {}

  struct Arrival {
    std::optional<Ticket> ticket;     // none: refused
    std::optional<Ticket> gives_way;  // to be ended; it has left
  };
  Arrival arrive(const AddressKey& address, TimePoint now);
  void moved(Ticket ticket, TimePoint now);  // it came further in its handshake
  void left(Ticket ticket);                  // ended, or no stranger any more; nothing when it has left
  std::size_t size() const { return strangers_.size(); }

 private:
  struct Stranger {
    AddressKey address;
    TimePoint still_since;
    int moves = 0;
  };
  std::optional<Ticket> stillest_of(const AddressKey& address) const;
  AddressKey largest() const;

  std::size_t all_max_;
  std::size_t per_address_max_;
  Ticket last_ = 0;
  std::map<Ticket, Stranger> strangers_;
  std::map<AddressKey, std::size_t> counts_;
};

}  // namespace fluvial::net
