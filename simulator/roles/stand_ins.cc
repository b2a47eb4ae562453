#include "simulator/roles/stand_ins.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "edge/update/encode.h"
#include "simulator/roles/training.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kStandIns = 64;
constexpr std::uint64_t kSampleValues = 1 << 16;  // beyond these an update's bytes grow as its values do

using Made = Result<std::shared_ptr<const StandIn>>;

Made make(store::SiteStore& store, const Scenario& scenario, const round::Schema& schema, std::uint64_t number) {
  const Buffer base = initial_model(schema, number);
  edge::UpdateJob job{RunId(number), RoundId(1), SiteId(static_cast<std::uint32_t>(number)), scenario.plan, schema};
  const TrainingResult trained =
      train(schema, base.span(), scenario.plan.seed, job.site, job.round, scenario.workload, 1);
  job.base = base.span();
  job.base_digest = sha256(base.span());
  job.parts.push_back({trained.model.span(), 1});
  job.weight = 1;
  Serial serial;
  FLUVIAL_ASSIGN(const store::PendingUpdate update, edge::encode_update(job, store, serial));
  StandIn made{update.info(), {}, {}};
  for (std::uint64_t i = 0; i < made.info.start.chunk_count; ++i) {
    FLUVIAL_ASSIGN(Buffer chunk, update.read_chunk(i));
    made.chunks.push_back(std::move(chunk));
  }
  FLUVIAL_ASSIGN(made.trailer, update.read_trailer());
  return std::make_shared<const StandIn>(std::move(made));
}

double chunk_bytes(const Made& made) { return static_cast<double>((*made)->info.chunk_bytes); }

}  // namespace

StandIns::StandIns(const Scenario& scenario, const round::Schema& schema) {
  store::MemoryFileSystem files;
  const Result<std::unique_ptr<store::SiteStore>> store = store::SiteStore::open(files, "state");
  FLUVIAL_CHECK(store.ok(), "a folder in memory");
  double bytes = 0;
  for (std::uint64_t number = 1; number <= kStandIns; ++number) {
    made_.push_back(make(**store, scenario, schema, number));
    if (!made_.back().ok()) return;  // nor can any other be made
    bytes += chunk_bytes(made_.back()) / kStandIns;
  }
  WorkloadScenario larger = scenario.workload;
  larger.values = std::min(larger.values, kSampleValues);
  const Made sample = make(**store, scenario, schema_of(larger), kStandIns + 1);
  if (!sample.ok()) {
    made_.emplace_back(sample.error());
    return;
  }
  const double times = static_cast<double>(scenario.workload.values) / static_cast<double>(larger.values);
  bytes_a_byte_ = chunk_bytes(sample) * times / bytes;
}

Result<std::shared_ptr<const StandIn>> StandIns::of(SiteId site, RoundId round) const {
  if (!made_.back().ok()) return made_.back().error();
  return made_[(site.value() + 31 * round.value()) % made_.size()];
}

}  // namespace fluvial::simulator
