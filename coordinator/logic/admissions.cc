#include "coordinator/logic/admissions.h"

#include <string_view>
#include <utility>

namespace fluvial::coordinator {
namespace {

// Empty: all is as it was.
std::string news(const Admissions::Came& before, const Admissions::Came& came) {
  std::string text;
  const auto more = [&text](std::string_view what) { text += (text.empty() ? "" : ", ") + std::string(what); };
  if (came.key != before.key) more("another key");
  if (came.process != before.process) more("another process");
  if (came.network != before.network) more("another address");
  return text;
}

}  // namespace

std::optional<std::string> Admissions::admitted(NodeId node, const Came& came, TimePoint now) {
  const auto [entry, first] = known_.try_emplace(node, Known{came});
  Known& known = entry->second;
  std::string text = first ? "the first time since the coordinator started" : news(known.last, came);
  if (text.empty()) return std::nullopt;
  known.last = came;
  std::optional<std::uint64_t> not_written = known.meter.happened(now);
  if (!not_written) return std::nullopt;
  if (*not_written > 0) text += "; " + std::to_string(*not_written) + " more before it";
  return text;
}

void Admissions::forget(NodeId node) { known_.erase(node); }

}  // namespace fluvial::coordinator
