#include "simulator/world/trace.h"

#include <cstdio>
#include <cstring>

namespace fluvial::simulator {
namespace {

__extension__ using Wide = unsigned __int128;

// Both halves of a product: every bit of the inputs reaches every bit of the sum.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

void Trace::mix(std::uint64_t word) {
  state_[0] = fold(state_[0] ^ word, 0xa0761d6478bd642fULL) + state_[1];
  state_[1] = fold(state_[1] + word, 0xe7037ed1a0b428dbULL) ^ state_[0];
}

void Trace::hash_event(HostId host, std::string_view what, std::uint64_t a, std::uint64_t b) {
  mix(static_cast<std::uint64_t>(scheduler_->now().time_since_epoch().count()));
  mix((std::uint64_t{host.value()} << 32) | what.size());
  bytes(as_byte_span(what));
  mix(a);
  mix(b);
}

void Trace::bytes(ByteSpan bytes) {
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    mix(word);
    bytes = bytes.subspan(8);
  }
  if (!bytes.empty()) {
    std::uint64_t word = bytes.size() << 56;
    std::memcpy(&word, bytes.data(), bytes.size());
    mix(word);
  }
}

void Trace::name(HostId host, std::string name) {
  if (names_.size() <= host.value()) names_.resize(host.value() + 1);
  names_[host.value()] = std::move(name);
}

std::string Trace::hash() const {
  std::array<std::byte, 16> bytes{};
  store_le(bytes.data(), state_[0]);
  store_le(bytes.data() + 8, state_[1]);
  return to_hex(bytes);
}

void Trace::line(HostId host, std::string_view what, const std::string& words) {
  char time[32];
  std::snprintf(time, sizeof(time), "%12.6f ",
                static_cast<double>(scheduler_->now().time_since_epoch().count()) * 1e-9);
  std::string text = time;
  text += host.value() < names_.size() ? names_[host.value()] : "-";
  text += " ";
  text += what;
  if (!words.empty()) text += ": " + words;
  if (lines_.size() == lines_max_) lines_.pop_front();
  lines_.push_back(std::move(text));
}

}  // namespace fluvial::simulator
