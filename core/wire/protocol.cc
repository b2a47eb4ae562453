#include "core/wire/protocol.h"

#include <algorithm>
#include <string>

#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

constexpr std::size_t kSoftwareBytesMax = 64;

std::string end_of(const char* role, std::string_view software, const Protocols& protocols) {
  std::string text = std::string("the ") + role + " (" + printable(software.substr(0, kSoftwareBytesMax)) +
                     ") speaks protocol " + std::to_string(protocols.oldest);
  if (protocols.newest != protocols.oldest) text += " to " + std::to_string(protocols.newest);
  return text;
}

Error disagreement(const std::string& parent, const std::string& child, bool child_is_older) {
  return {Code::kFailedPrecondition,
          child + ", " + parent + ": update the " + (child_is_older ? "child" : "parent") + " first"};
}

}  // namespace

Result<std::uint32_t> choose_protocol(const Protocols& own, const v1::Hello& hello, std::string_view software) {
  const Protocols child{hello.protocol_min(), hello.protocol_max()};
  const std::uint32_t newest = std::min(own.newest, child.newest);
  if (newest >= std::max(own.oldest, child.oldest)) return newest;
  return disagreement(end_of("parent", software, own), end_of("child", hello.software(), child),
                      child.newest < own.oldest);
}

Status check_protocol(const Protocols& own, const v1::Welcome& welcome, std::string_view software) {
  const std::uint32_t chosen = welcome.protocol();
  if (chosen >= own.oldest && chosen <= own.newest) return {};
  return disagreement(end_of("parent", welcome.software(), {chosen, chosen}), end_of("child", software, own),
                      chosen > own.newest);
}

}  // namespace fluvial::wire
