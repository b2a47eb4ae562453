// A run as it happens, for people: plain lines into a pipe, on a terminal a progress bar below them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/json.h"

namespace fluvial::cli {

// One committed round in a line, without its end: participants, what workers report, bytes up and down, seconds.
// `window_goal`: the plan's, where rounds are windows.
std::string format_round(const json::value& round, std::uint64_t rounds_total, const Terminal& terminal,
                         std::optional<std::uint64_t> window_goal = {});
std::string site_names(const json::array& contributors);  // "site-1 (weight 320), site-2 (...)"

class RoundView {
 public:
  enum class Evaluation {
    kSeparate,  // a line at the commit, another when the evaluation is in
    kAwaited,   // one line, when the evaluation is in (or the round after next is)
  };
  enum class Waits {
    kNotTold,
    kTold,  // on a terminal beside the bar; else a line at the beginning, then one when somebody has to do something:
            // once, until that node has been counted or does something else
  };
  RoundView(Io io, std::uint64_t rounds_total, Evaluation evaluation, Waits waits = Waits::kNotTold)
      : io_(io), terminal_(io.terminal()), rounds_total_(rounds_total), evaluation_(evaluation), waits_(waits) {}

  void of_plan(const json::value& plan);  // before the first event: whether its rounds are windows
  void on_event(const json::value& event);
  void finish();  // prints what is still held and takes the bar away

  std::uint64_t committed() const { return committed_; }
  std::uint64_t late_updates() const { return late_updates_; }
  const std::string& status() const { return status_; }  // the last that was heard: "running", "done", ...
  const std::string& reason() const { return reason_; }
  const json::value& last_round() const { return last_round_; }

 private:
  void on_committed(const json::value& round);
  void on_evaluated(const json::value& event);
  void on_state(const json::value& event);
  void on_waits(const json::value& event);
  void forget_past(const json::array& waits);
  json::array news(const json::array& needy);
  const char* unit() const { return window_goal_ ? "window" : "round"; }
  void print_held(std::size_t kept);
  void print_line(const std::string& line);
  void draw_bar(const std::string& what);

  Io io_;
  Terminal terminal_;
  std::uint64_t rounds_total_;
  Evaluation evaluation_;
  Waits waits_;
  std::optional<std::uint64_t> window_goal_;  // none: its rounds are no windows
  bool waits_begun_ = false;
  std::map<std::string, std::string> told_waits_;  // what each of those who need somebody was told to need
  std::map<std::uint64_t, json::value> held_;      // committed, not yet printed
  json::value last_round_;
  std::uint64_t committed_ = 0;
  std::uint64_t late_updates_ = 0;
  std::string status_;
  std::string reason_;
  std::string bar_;
};

}  // namespace fluvial::cli
