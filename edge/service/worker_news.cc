#include "edge/service/worker_news.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/deadline.h"

namespace fluvial::edge {

WorkerNews::WorkerNews(SiteContext& site, Trainers& trainers, const tree::ModelReceiver& models, bool reads_in_place,
                       std::chrono::milliseconds patience, std::function<void()> let_go)
    : site_(site),
      trainers_(trainers),
      models_(models),
      patience_(patience),
      let_go_(std::move(let_go)),
      ends_(reads_in_place),
      model_here_(site.runtime.strand) {}

void WorkerNews::carry_out(RunEffects effects) {
  if (site_.stopping) return;
  effects_.carry_out(std::move(effects), [this](const auto& decided) { apply(decided); });
}

void WorkerNews::model_held(const HeldModel& model) {
  model_ = model.bytes;
  carry_out(ends_.model_held(model.ref));
}

void WorkerNews::not_used(RunId run, RoundId round, const std::string& reason, std::uint64_t weight_max) {
  if (!site_.stopping) trainers_.update_refused({run, round, reason, weight_max});
}

void WorkerNews::refused(RunId run, RoundId round, const std::string& reason) {
  const Refused about{run, round};
  if (std::exchange(refused_, about) != about) not_used(run, round, reason);
}

void WorkerNews::apply(const TellCommitted& effect) {
  trainers_.committed({effect.run, effect.name, effect.round, effect.model.version, model_});
  model_here_.notify_all();
}

void WorkerNews::apply(const TellNoneCommitted&) {
  trainers_.none_committed();
  model_here_.notify_all();
}

void WorkerNews::apply(const TellActive& effect) { trainers_.run_active({effect.run, effect.name}); }

void WorkerNews::apply(const AwaitLastModel& effect) {
  if (!trainers_.owes(effect.run, effect.round)) return carry_out(ends_.last_model_over(effect.run));
  site_.spawn("last model", await_last_model(effect.run, effect.round));
}

net::Awaitable<void> WorkerNews::await_last_model(RunId run, RoundId last) {
  for (std::uint64_t before = ~models_.bytes_received();;) {
    if (site_.stopping || !ends_.awaits_last_model(run) || !trainers_.owes(run, last)) break;
    const Status woken = co_await net::with_deadline(model_here_.wait(), patience_);
    if (!woken.ok() && before == models_.bytes_received()) {
      site_.report.last_model_missing(run, last);
      break;
    }
    before = models_.bytes_received();
  }
  carry_out(ends_.last_model_over(run));
}

void WorkerNews::apply(const TellEnded& effect) {
  if (effect.at_hand) {
    let_go_();
    trainers_.let_go();
  }
  trainers_.run_ended({effect.end.run, effect.end.name, effect.end.state});
}

}  // namespace fluvial::edge
