// A person's commands to the run, each waiting for its answer: the machine answers them in the order in which it was
// given them. On the node's strand.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/net/signal.h"

namespace fluvial::coordinator {

// The reason of a run that a person paused or stopped; every other reason is the run's own.
inline constexpr std::string_view kByPerson = "by an administrator";
inline constexpr std::size_t kGivenReasonBytesMax = 500;
// "by an administrator: the loss rises": with what the person, or a program of theirs, says why.
inline bool is_by_person(std::string_view reason) { return reason.starts_with(kByPerson); }

class Commands {
 public:
  explicit Commands(net::Executor strand) : strand_(std::move(strand)) {}

  // `give` gives it to the machine. Returns with the answer, or with kCancelled when the coordinator stops.
  template <typename Give>
  net::Awaitable<Status> command(Give give) {
    const auto waiting = std::make_shared<Waiting>(strand_);
    waiting_.push_back(waiting);
    give();
    while (!waiting->answer && !stopping_) co_await waiting->answered.wait();
    co_return waiting->answer.value_or(Error{Code::kCancelled, "the coordinator is stopping"});
  }
  void answer(const Status& result);  // to the oldest that has none yet
  void stop();

 private:
  struct Waiting {
    explicit Waiting(const net::Executor& strand) : answered(strand) {}
    std::optional<Status> answer;
    net::AsyncSignal answered;
  };
  net::Executor strand_;
  std::deque<std::shared_ptr<Waiting>> waiting_;
  bool stopping_ = false;
};

}  // namespace fluvial::coordinator
