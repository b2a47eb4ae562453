// What the coordinator has said it committed, held to what a commit is: once a round, one round after the other, and
// for ever. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cli/json.h"
#include "core/base/result.h"

namespace fluvial::chaos {

class CommitLog {
 public:
  // `windows`: nobody is late for one, so whoever is not in it may come later.
  explicit CommitLog(std::uint64_t quorum, bool windows = false) : quorum_(quorum), windows_(windows) {}

  // A round as the admin API or its events give it, in the order they came; known ones may come again. True: it is new.
  // An error says what is wrong with it.
  Result<bool> add(const cli::json::value& round);

  std::uint64_t last() const { return rounds_.empty() ? 0 : rounds_.rbegin()->first; }
  // By site's name: the rounds that counted it.
  const std::map<std::string, std::uint64_t>& counted() const { return counted_; }
  const std::map<std::uint64_t, std::uint64_t>& by_attempts() const { return by_attempts_; }  // rounds, by attempts
  std::uint64_t late() const { return late_; }
  std::uint64_t refused() const { return refused_; }
  // Sites that were in a pass and in no later one, of rounds with several.
  std::uint64_t between_passes() const { return between_passes_; }

 private:
  Status check_new(const cli::json::value& round) const;

  std::uint64_t quorum_;
  bool windows_;
  std::map<std::uint64_t, std::string> rounds_;  // what was said of each, as text
  std::map<std::string, std::uint64_t> counted_;
  std::map<std::uint64_t, std::uint64_t> by_attempts_;
  std::uint64_t late_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t between_passes_ = 0;
};

}  // namespace fluvial::chaos
