// The site of parent_sequence_fuzz.cc: edge/service as it ships, in a simulated host, with a worker that is done at
// once; and what its coordinator has said, against which all that the site does is checked.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "core/round/lateness.h"
#include "core/wire/record_mapping.h"
#include "core/wire/statements.h"
#include "edge/service/service.h"
#include "edge/update/open.h"
#include "tests/fuzz/town.h"

namespace fluvial::fuzz {

using round::Outcome;

inline constexpr HostId kSiteHost{1};
inline constexpr std::uint64_t kValues = 300;  // two chunks
inline constexpr std::uint64_t kIntegers = 1;
inline constexpr RunId kHonestRun{100};
inline constexpr std::uint64_t kRuns = 3;
inline constexpr std::uint64_t kRounds = 4;
inline constexpr RunId kLateRun{2};    // an update of it may enter the two rounds after its own
inline constexpr RunId kWindowRun{3};  // the same, and its rounds are windows: one goes over into the next
inline constexpr std::uint32_t kStalenessMax = 2;
inline constexpr std::uint32_t kDriftMax = 2;
inline bool takes_old(RunId run) { return run == kLateRun || run == kWindowRun; }
// A residual of each run (two files: p and the chunks that were sent of it), and the two of the one submission without
// an outcome. A submission or a residual that is begun replaces one of these.
inline constexpr std::size_t kTensorFilesMax = 2 * kRuns + 2;
inline constexpr round::HistoryId kHistory{0};

// ---- what is so --------------------------------------------------------------------------------------------------

inline const round::Schema& schema() {
  static const round::Schema made =
      round::Schema::make({{"w", round::DType::kF32, {kValues}}, {"n", round::DType::kI64, {kIntegers}}}).value();
  return made;
}

struct Model {
  round::ModelRef ref;
  Buffer bytes;
};
inline const Model& model(RunId run, std::uint64_t version) {
  static std::map<std::pair<RunId, std::uint64_t>, Model> models;
  Model& made = models[{run, version}];
  if (made.bytes.empty()) {
    made.bytes = Buffer(schema().model_bytes());
    const std::vector<float> values(kValues, static_cast<float>(version) + 0.25F * static_cast<float>(run.value() % 4));
    const std::int64_t integer = static_cast<std::int64_t>(version);
    FLUVIAL_CHECK(round::join_model(schema(), values, std::span(&integer, 1), made.bytes.span()).ok(), "a model");
    made.ref = {run, ModelVersion(version), sha256(made.bytes.span()), made.bytes.size()};
  }
  return made;
}

// That the coordinator signs beside the model's SHA-256. Of the first run it signs none, as an older one.
inline std::optional<Digest> tree_of(const round::ModelRef& ref) {
  if (ref.run == RunId(1)) return std::nullopt;
  Serial serial;
  return *model_tree_digest(serial, model(ref.run, ref.version.value()).bytes.span());
}

inline constexpr const char* kCodecs[] = {"fp32", "int8", "topk:ratio=0.1", "sign"};

inline wire::Opening opening_of(RunId run, std::uint64_t round, std::uint32_t attempt) {
  wire::Opening opening;
  opening.run = run;
  opening.round = RoundId(round);
  opening.attempt = AttemptId(attempt);
  opening.epoch = Epoch(1);
  opening.base = model(run, std::min(round - 1, kRounds)).ref;  // nobody makes models without end
  opening.plan.name = "fuzz";
  opening.plan.codec = kCodecs[(run.value() + round) % std::size(kCodecs)];
  opening.plan.chunk_values = 256;
  opening.scale_bits = 20;
  opening.value_count = kValues;
  opening.integer_count = kIntegers;
  if (takes_old(run)) {
    opening.late = round::Lateness{kStalenessMax, {512, 362, 296, 256}, {}};
    for (std::uint64_t version = opening.base.version.value(); version > 0;) {
      if (opening.late->earlier.size() == kStalenessMax) break;
      opening.late->earlier.push_back(model(run, --version).ref);
    }
    if (run == kWindowRun) opening.late->drift_max = kDriftMax;
  }
  opening.soft_left = std::chrono::seconds(10);
  opening.hard_left = std::chrono::seconds(20);
  return opening;
}

// What the coordinator has said so far, and its parent has passed on. It never contradicts itself.
class Truth {
 public:
  explicit Truth(SiteId site) : site_(site) {}

  void say_opening(wire::Opening* opening) {
    opening->base_tree = tree_of(opening->base);
    opening->order = std::make_shared<const v1::Signed>(
        signed_by(kRoot, wire::kOpeningKind, wire::opening_body(*opening, {site_}, kHistory)));
    opened_.insert({opening->run, opening->round});
  }
  void say_commit(wire::Commit* commit) {
    commit->model_tree = tree_of(commit->model);
    commit->order = std::make_shared<const v1::Signed>(
        signed_by(kRoot, wire::kCommitKind, wire::commit_body(*commit, {}, kHistory)));
  }
  // What became of the site's update: as it was decided first.
  wire::Decided decide(RunId run, RoundId round, Outcome wish, const std::optional<Digest>& digest) {
    wire::Decided decided{run, round, site_, wish, digest};
    if (wish == Outcome::kCounted && !digest) decided.outcome = Outcome::kLate;
    return decided_.try_emplace({run, round}, decided).first->second;
  }
  v1::Signed order_of(const wire::Decided& decided) const {
    return signed_by(kRoot, wire::kOutcomeKind, wire::outcome_body(decided, kHistory));
  }
  void say(const wire::Decided& decided) { said_.push_back(decided); }

  bool is_decided(RunId run, RoundId round) const { return decided_.contains({run, round}); }
  bool is_opened(RunId run, RoundId round) const { return opened_.contains({run, round}); }
  bool is_said(const store::PendingInfo& info, Outcome outcome) const {
    return std::ranges::any_of(said_, [&](const wire::Decided& decided) {
      const bool same = decided.run == info.start.run && decided.round == info.start.round;
      const bool is_own = decided.digest == info.digest;
      const bool is_later = decided.run == info.start.run && decided.round > info.start.round;
      if (is_later && is_own && decided.outcome == Outcome::kCounted) return outcome == Outcome::kCounted;
      if (!same) return false;
      if (decided.outcome != Outcome::kCounted) return decided.outcome == outcome;
      return outcome == (is_own ? Outcome::kCounted : Outcome::kLate);
    });
  }

 private:
  SiteId site_;
  std::set<std::pair<RunId, RoundId>> opened_;
  std::map<std::pair<RunId, RoundId>, wire::Decided> decided_;
  std::vector<wire::Decided> said_;
};

// ---- the site ----------------------------------------------------------------------------------------------------

// Its worker: a result a moment after each task.
class Worker final : public edge::Trainers {
 public:
  Worker(World& world, Truth& truth) : world_(world), truth_(truth) {}
  Status open(Events) override { return {}; }
  void stop() override {}
  void train(edge::TrainJob job, Done done) override {
    FLUVIAL_CHECK(truth_.is_opened(job.run, job.round), "trains what the coordinator has not opened");
    const wire::Opening opening = opening_of(job.run, job.round.value(), 1);
    FLUVIAL_CHECK(job.plan == opening.plan && job.base.ref == opening.base, "trains by another plan, or another model");
    FLUVIAL_CHECK(sha256(job.base.bytes->bytes()) == opening.base.digest && job.base.schema == schema(),
                  "trains on other bytes");
    world_.after(kSiteHost, std::chrono::milliseconds(2),
                 [job = std::move(job), done = std::move(done)]() mutable { done(result(std::move(job))); });
  }
  void committed(local::CommittedModel) override {}
  void none_committed() override {}
  bool owes(RunId, RoundId) const override { return false; }
  void let_go() override {}
  void run_active(local::ActiveRun) override {}
  void run_ended(local::EndedRun) override {}
  void update_refused(local::RefusedUpdate) override {}
  edge::WorkerOutcomes& outcomes() override { return outcomes_; }
  std::size_t workers() const override { return 1; }
  std::string holders() const override { return ""; }

 private:
  static Result<edge::Trained> result(edge::TrainJob job) {
    edge::HeldModel& base = job.base;
    std::vector<float> values(kValues);
    std::int64_t integer = 0;
    round::split_model(schema(), base.bytes->bytes(), values, std::span(&integer, 1));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 0.001F * static_cast<float>(i % 7);
    Buffer bytes(schema().model_bytes());
    FLUVIAL_TRY(round::join_model(schema(), values, std::span(&integer, 1), bytes.span()));
    FLUVIAL_ASSIGN(std::shared_ptr<const local::SharedModel> trained, local::SharedModel::copy_of(bytes.span()));
    edge::Trained made;
    made.weight = static_cast<std::uint32_t>(std::min<std::uint64_t>(5, job.weight_max));
    made.parts.push_back(
        {{{"worker", std::move(trained), round::ByteRanges::whole(base.ref.bytes)}}, made.weight, false});
    made.base = std::move(base);
    return made;
  }
  World& world_;
  Truth& truth_;
  edge::WorkerOutcomes outcomes_;
};

class Site final : public TownNode, private edge::SiteReport {
 public:
  Site(World& world, HostId host, Truth& truth) : TownNode(world, host), truth_(truth), worker_(world, truth) {}
  ~Site() override { take_down(); }

  void start() override {
    auto store = edge::open_site_store(runtime().files, "state");
    FLUVIAL_CHECK(store.ok(), "a store on a disk without a fault");
    store_ = store->get();
    tree::UplinkOptions uplink;
    uplink.coordinator = {"host:0", 1};
    uplink.incarnation = (*store)->incarnation();
    uplink.software = "fuzz";
    uplink.jitter_seed = 1;
    config::EdgeSettings settings;
    settings.reduction = "direct";
    settings.outcome_interval_ms = 5'000;
    service_ = std::make_unique<edge::EdgeService>(
        runtime(), settings,
        edge::EdgeService::Parts{.uplink = uplink,
                                 .dial = dial([](const net::HostPort&) { return Answer{kRoot, kRoot}; }),
                                 .self = identity_of(world(), host()),
                                 .store = std::move(*store),
                                 .gpus = nullptr,
                                 .trainers = worker_,
                                 .report = *this,
                                 .tasks = tasks(),
                                 .set_ready = [](bool) {},
                                 .request_stop = [] { FLUVIAL_CHECK(false, "the agent ends because of its parent"); },
                                 .key = key_of(host())});
    set_outgoing([this](simulator::SessionId, v1::Envelope& message, SharedBytes&) {
      if (message.has_update_begin()) beginning_ = message.update_begin().key().submission();
      if (message.has_update_end()) sent_.insert(beginning_);
      return true;
    });
    FLUVIAL_CHECK(service_->open().ok(), "a site begins");
  }

  store::SiteStore& store() { return *store_; }
  const std::optional<store::PendingInfo>& submission() const { return submission_; }
  void check() {
    const Result<std::vector<std::string>> files = runtime().files.list("state/tensors");
    FLUVIAL_CHECK(files.ok() && files->size() <= kTensorFilesMax, "its folder grows with what its parent says");
    FLUVIAL_CHECK(store_->all_pending()->size() <= 1, "more than one submission without an outcome");
  }

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session>) override { co_return; }
  void encoding(const edge::Offer& offer) override {
    FLUVIAL_CHECK(truth_.is_opened(offer.run, offer.round), "encodes for a round that is not open");
  }
  void encoded(const store::PendingInfo& info, double) override {
    FLUVIAL_CHECK(info.start.weight <= 5, "a weight that it has not trained with");
    submission_ = info;
  }
  void resolving(const store::PendingInfo& info, Outcome outcome) override {
    FLUVIAL_CHECK(!resolved_.contains(info.submission), "a submission is resolved twice");
    const bool unsent_late = outcome == Outcome::kLate && !sent_.contains(info.submission);
    FLUVIAL_CHECK(unsent_late || truth_.is_said(info, outcome), "resolved otherwise than the coordinator decided");
  }
  void resolved(const edge::Pending& pending, Outcome, bool) override { resolved_.insert(pending.submission); }
  void failed(std::string_view what, const Error& error) override {
    FLUVIAL_CHECK(false, std::string(what) + ": " + error.to_string());
  }

  Truth& truth_;
  Worker worker_;
  std::unique_ptr<edge::EdgeService> service_;
  store::SiteStore* store_ = nullptr;
  std::optional<store::PendingInfo> submission_;  // the last one
  std::uint64_t beginning_ = 0;                   // the submission that is on its way
  std::set<std::uint64_t> sent_;
  std::set<std::uint64_t> resolved_;
};

}  // namespace fluvial::fuzz
