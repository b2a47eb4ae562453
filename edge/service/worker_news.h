// What workers hear besides their tasks: of committed models and of their run's end, as RunEnds decides, and why what
// they gave counts nowhere.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/net/signal.h"
#include "core/tree/model_receiver.h"
#include "edge/logic/in_order.h"
#include "edge/logic/run_ends.h"
#include "edge/service/site_context.h"
#include "edge/service/trainers.h"

namespace fluvial::edge {

class WorkerNews {
 public:
  // `let_go`: of what is kept of the workers' results. A last model is waited for as long as some of it comes within
  // `patience`.
  WorkerNews(SiteContext& site, Trainers& trainers, const tree::ModelReceiver& models, bool reads_in_place,
             std::chrono::milliseconds patience, std::function<void()> let_go);

  RunEnds& ends() { return ends_; }
  const RunEnds& ends() const { return ends_; }
  void model_held(const HeldModel& model);
  void carry_out(RunEffects effects);  // of ends()
  // What was trained in that round cannot be used, by the site itself: each time. `weight_max`: the workers' weights
  // are more than that together.
  void not_used(RunId run, RoundId round, const std::string& reason, std::uint64_t weight_max = 0);
  // The update of that round was refused: told once, though each attempt refuses it anew and the commit says it again.
  void refused(RunId run, RoundId round, const std::string& reason);
  void stop() { model_here_.notify_all(); }

 private:
  void apply(const TellCommitted& effect);
  void apply(const TellNoneCommitted& effect);
  void apply(const TellActive& effect);
  void apply(const AwaitLastModel& effect);
  void apply(const TellEnded& effect);
  net::Awaitable<void> await_last_model(RunId run, RoundId last);

  SiteContext& site_;
  Trainers& trainers_;
  const tree::ModelReceiver& models_;
  std::chrono::milliseconds patience_;
  std::function<void()> let_go_;
  RunEnds ends_;
  InOrder<RunEffect> effects_;
  std::shared_ptr<const local::SharedModel> model_;  // the one that is held
  struct Refused {
    RunId run;
    RoundId round;
    bool operator==(const Refused&) const = default;
  };
  std::optional<Refused> refused_;  // the last one that was told
  net::AsyncSignal model_here_;
};

}  // namespace fluvial::edge
