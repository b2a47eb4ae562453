// Whom strangers are told apart by: one IPv4 address, or the /64 of an IPv6 address (a home or a server has that many).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "core/net/pace.h"

namespace fluvial::net {

struct AddressKey {
  bool is_v6 = false;
  std::uint64_t bits = 0;  // the address, or the first half of it
  auto operator<=>(const AddressKey&) const = default;
};

// Of "192.0.2.7:443" or "[2001:db8::7]:443" (Session::remote). An IPv4 address within IPv6 is that one; a text that is
// no address is one key with all others.
AddressKey address_key(std::string_view remote);

// A pace for each address; what it keeps is bounded. Pure: the time is passed in. Not thread safe.
class AddressPaces {
 public:
  AddressPaces(double per_second, double burst, std::size_t addresses_max = 4'096)
      : per_second_(per_second), burst_(burst), addresses_max_(addresses_max) {}

  bool take(const AddressKey& address, TimePoint now);  // false: its pace is used up
  std::size_t size() const { return paces_.size(); }

 private:
  double per_second_;
  double burst_;
  std::size_t addresses_max_;
  std::map<AddressKey, Pace> paces_;
};

}  // namespace fluvial::net
