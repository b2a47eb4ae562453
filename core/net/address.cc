#include "core/net/address.h"

#include <boost/asio/ip/address.hpp>
#include <string>

#include "core/net/awaitable.h"

namespace fluvial::net {

AddressKey address_key(std::string_view remote) {
  std::string_view host = remote.substr(0, remote.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) return {};
  if (address.is_v4()) return {false, address.to_v4().to_uint()};
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return {false, asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_uint()};
  AddressKey key{true, 0};
  const auto bytes = v6.to_bytes();
  for (std::size_t i = 0; i < 8; ++i) key.bits = key.bits << 8 | bytes[i];
  return key;
}

bool AddressPaces::take(const AddressKey& address, TimePoint now) {
  auto found = paces_.find(address);
  if (found == paces_.end()) {
    if (paces_.size() >= addresses_max_) {
      std::erase_if(paces_, [now](auto& known) { return known.second.is_rested(now); });
      if (paces_.size() >= addresses_max_) return false;
    }
    found = paces_.try_emplace(address, per_second_, burst_, now).first;
  }
  return found->second.try_take(now) == Duration::zero();
}

}  // namespace fluvial::net
