// Between two passes of a round (docs/design/phases.md): the mean of the one that is over, and the opening of the next.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/run_steps.h"
#include "core/net/pool_parallel.h"
#include "core/tree/vectors.h"
#include "kernels/stream_key.h"

namespace fluvial::coordinator {

void RunSteps::begin(const Reduce& effect) {
  side_.lane().push([this, effect] { return do_reduce(effect); });
}

// Nothing is journaled: a coordinator that is started again begins the next attempt, and no attempt has two means.
net::Awaitable<void> RunSteps::do_reduce(Reduce effect) {
  if (!is_due(effect.step)) co_return;
  net::PoolParallel parallel(runtime_.pool);
  const TimePoint begun = now();
  const round::AttemptRecord record = machine().attempt();
  Result<NamedVector> mean = co_await runtime_.pool.run(
      [&] {
        return mean_of_pass(parallel, side_.sum().node(), effect.contributors,
                            {record.epoch, record.attempt, effect.pass});
      },
      net::Work::kFinalise);
  const TimePoint made = now();
  side_.spans().add(record.run, record.round, {round::SpanKind::kFinalise, {}, begun, made});
  if (!is_due(effect.step)) co_return;
  if (!mean.ok()) {
    step_failed(effect.step, DiskPart::kModels, mean.error());
    co_return;
  }
  observer_.pass_over(effect, record, *mean, made - begun);
  const round::Pass next = machine().pass_after(mean->ref);
  side_.begin_sum(record.run, record.round, shape_of(record, next), next.index);
  const wire::Opening whole = opening_of(record, next);
  const std::vector<round::Participant> participants = machine().participants_after(effect.contributors);
  wire::Order order;
  const Status signed_ = co_await runtime_.pool.run([&]() -> Status {
    order = signer_.opening(whole, participants);
    return {};
  });
  FLUVIAL_CHECK(signed_.ok(), "a signature needs no disk");
  if (!is_due(effect.step)) co_return;
  host_.current()->means.push_back(std::move(mean->bytes));
  host_.current()->order = std::move(order);
  give_vector(next, record.base);
  host_.carry_out(machine().reduced(effect.step, mean->ref, now()));
}

// To those who ask: the mean of the pass before, or in the first one the codec's state.
void RunSteps::give_vector(const round::Pass& pass, const round::ModelRef& base) {
  ActiveRun& run = *host_.current();
  if (run.vector) run.vector->abandon();
  run.vector.reset();
  const std::optional<round::VectorRef>& ref = pass.mean ? pass.mean : pass.state;
  if (!ref) return;
  run.vector =
      tree::slot_of_vector(runtime_.strand, tree::called(*ref, base), pass.mean ? run.means.back() : run.codec_state);
}

std::optional<PassesInput> RunSteps::passes_of(const round::CommitRecord& record) const {
  const ActiveRun& run = *host_.current();
  if (record.passes.empty()) return std::nullopt;
  return PassesInput{run.codec, run.means,
                     kernels::stream_key(run.machine.plan().seed, record.round.value(), std::string_view()),
                     run.codec_state};
}

}  // namespace fluvial::coordinator
