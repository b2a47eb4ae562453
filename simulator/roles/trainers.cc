#include "simulator/roles/trainers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace fluvial::simulator {

Duration training_time(const Cast& cast, HostId host, Rng& rng) {
  const SitesScenario& sites = cast.scenario().sites;
  const std::chrono::duration<double, std::nano> drawn = between(rng, sites.train_min, sites.train_max);
  return std::chrono::duration_cast<Duration>(drawn * cast.slowness(host));
}

SiteTrainers::SiteTrainers(Cast& cast, HostId host)
    : cast_(cast),
      host_(host),
      rng_(cast.world().chance().stream("site", (std::uint64_t{host.value()} << 32) ^ cast.world().starts(host))) {}

void SiteTrainers::train(edge::TrainJob job, Done done) {
  cast_.world().after(host_, training_time(cast_, host_, rng_),
                      [this, job = std::move(job), done = std::move(done)]() mutable {
                        if (!cast_.world().crash_here(host_, "trained")) done(trained(std::move(job)));
                      });
}

TrainingResult SiteTrainers::taught(const edge::TrainJob& job) {
  const Lessons& lessons = *cast_.lessons();
  const std::size_t site = cast_.number_of(host_);
  const ByteSpan base = job.base.bytes->bytes();
  const std::vector<float> local = lessons.train(site, job.round, values_of(job.base.schema, base));
  TrainingResult result = simulator::trained(job.base.schema, base, local, lessons.weight(site));
  // Real training may diverge, and the site itself refuses what it made.
  const auto is_usable = [&](float value) { return std::abs(double{value}) <= job.plan.value_abs_max; };
  if (!std::ranges::all_of(result.update, is_usable)) {
    cast_.checks().rounds().excuse(job.run, job.round, cast_.identity(host_).node);
  }
  return result;
}

TrainingResult SiteTrainers::made_up(const edge::TrainJob& job) {
  // Two machines of one identity train different updates, and so does a site that returned with another weight, because
  // a digest does not include the weight.
  const std::uint64_t own = cast_.is_cloned(host_) ? host_.value() : 0;
  const std::uint64_t weight_max = cast_.weight_max(host_);
  const std::uint64_t seed = cast_.world().chance().seed() ^ own ^ (weight_max << 24);
  return simulator::train(job.base.schema, job.base.bytes->bytes(), seed, cast_.identity(host_).node, job.round,
                          cast_.scenario().workload, weight_max);
}

Result<edge::Trained> SiteTrainers::trained(edge::TrainJob job) {
  last_ = cast_.lessons() != nullptr ? taught(job) : made_up(job);
  last_.weight = static_cast<std::uint32_t>(std::min<std::uint64_t>(last_.weight, job.weight_max));  // as it is told
  FLUVIAL_ASSIGN(std::shared_ptr<const local::SharedModel> model, local::SharedModel::copy_of(last_.model.span()));
  edge::Trained trained;
  trained.weight = last_.weight;
  trained.parts.push_back(
      {{{"worker", std::move(model), round::ByteRanges::whole(job.base.ref.bytes)}}, last_.weight, false});
  trained.base = std::move(job.base);
  return trained;
}

}  // namespace fluvial::simulator
