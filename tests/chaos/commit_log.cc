#include "tests/chaos/commit_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

namespace fluvial::chaos {
namespace {

using cli::array_member;
using cli::count_member;
using cli::text_member;
using cli::json::value;

std::set<std::uint64_t> sites_of(const value& of) {
  std::set<std::uint64_t> sites;
  for (const value& entry : array_member(of, "contributors")) sites.insert(count_member(entry, "site"));
  return sites;
}

std::string text_of(const value& round) {
  cli::json::object object = round.as_object();
  object.erase("event");  // an event has it, a listing has not
  if (const auto contributors = object.find("contributors"); contributors != object.end()) {
    for (value& one : contributors->value().as_array()) one.as_object().erase("parent");  // nor an event these
  }
  return cli::json::serialize(object);
}

}  // namespace

Result<bool> CommitLog::add(const value& round) {
  if (!round.is_object()) return Error{Code::kDataLoss, "a round that is no object"};
  const std::uint64_t number = count_member(round, "round");
  std::string text = text_of(round);
  if (const auto known = rounds_.find(number); known != rounds_.end()) {
    if (known->second == text) return false;
    return Error{Code::kDataLoss, fmt::format("round {} was committed twice, or has changed since:\n  {}\n  {}", number,
                                              known->second, text)};
  }
  FLUVIAL_TRY(check_new(round));
  rounds_[number] = std::move(text);
  for (const value& entry : array_member(round, "contributors")) ++counted_[text_member(entry, "name")];
  ++by_attempts_[count_member(round, "attempt")];
  late_ += count_member(round, "late");
  refused_ += array_member(round, "refused").size();
  const auto& passes = array_member(round, "passes");
  if (!passes.empty()) {
    between_passes_ += array_member(passes[0], "contributors").size() - array_member(round, "contributors").size();
  }
  return true;
}

Status CommitLog::check_new(const value& round) const {
  const std::uint64_t number = count_member(round, "round");
  const auto wrong = [number](std::string what) {
    return Error{Code::kDataLoss, fmt::format("round {}: {}", number, std::move(what))};
  };
  if (number != last() + 1) return wrong(fmt::format("committed after round {}", last()));
  if (count_member(round, "attempt") == 0) return wrong("committed in no attempt");
  const auto& contributors = array_member(round, "contributors");
  const std::uint64_t settled = contributors.size() + array_member(round, "refused").size();
  if (contributors.size() < quorum_) {
    return wrong(fmt::format("{} contributors, and the quorum is {}", contributors.size(), quorum_));
  }
  const std::uint64_t late = count_member(round, "late");
  const std::uint64_t participants = count_member(round, "participants");
  if (windows_ ? settled > participants || late > 0 : settled + late != participants) {
    return wrong(fmt::format("{} in or refused and {} late are not its {} participants", settled, late, participants));
  }
  std::set<std::uint64_t> sites;
  std::uint64_t weight = 0;
  for (const value& entry : contributors) {
    if (!sites.insert(count_member(entry, "site")).second) return wrong(text_member(entry, "name") + " counts twice");
    if (text_member(entry, "digest").empty()) return wrong(text_member(entry, "name") + " counts without a digest");
    weight += count_member(entry, "weight");
  }
  for (const value& entry : array_member(round, "refused")) {
    if (!sites.insert(count_member(entry, "site")).second) {
      return wrong(text_member(entry, "name") + " counts, and is refused");
    }
  }
  if (weight != count_member(round, "weight")) return wrong("its weight is not the sum of its contributors'");
  std::set<std::uint64_t> later = sites_of(round);
  const auto& passes = array_member(round, "passes");
  for (std::size_t pass = passes.size(); pass-- > 0;) {
    const std::set<std::uint64_t> in = sites_of(passes[pass]);
    if (!std::ranges::includes(in, later))
      return wrong(fmt::format("somebody is not in pass {} and in a later one", pass + 1));
    later = in;
  }
  return {};
}

}  // namespace fluvial::chaos
