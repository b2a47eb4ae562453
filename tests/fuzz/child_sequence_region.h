// The town of child_sequence_fuzz.cc: an aggregator/service as it ships on a simulated host, and its children as far as
// it sees them, whose updates are one value over and over.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/service/region_report.h"
#include "aggregator/service/region_service.h"
#include "core/digest/sha256.h"
#include "core/round/lateness.h"
#include "core/round/probe.h"
#include "core/wire/statements.h"
#include "tests/fuzz/town.h"

namespace fluvial::fuzz {

inline constexpr HostId kRegion{1};
inline constexpr HostId kHostile{2};
inline constexpr HostId kHonest{3};
inline constexpr RunId kRun{1};
inline constexpr kernels::ChunkLayout kLayout{300, 256};
inline constexpr int kScale = 20;
inline constexpr std::uint64_t kWeightMax = 100;
inline constexpr std::uint64_t kUpdateBytes = kLayout.value_count * sizeof(float);
inline constexpr std::uint64_t kStagingBytes = 2'000;  // less than two updates: others go to the disk
inline constexpr std::size_t kSites = 2;
// A site has at most one update that is staged (core/round/gather.h: who is counted is not admitted again), and one
// that its session brings or that a session before left (core/transfer/round_book.h: a beginning takes or drops it).
// One more, that is not wanted any longer, may be on its way into the sum.
inline constexpr std::uint64_t kHeldBytesMax = (kSites * 2 + 1) * kUpdateBytes;
inline constexpr round::HistoryId kHistory{0};

inline round::ModelRef model(std::uint64_t version) {
  Digest digest{};
  digest[0] = static_cast<std::byte>(version);
  return {kRun, ModelVersion(version), digest, kLayout.value_count * sizeof(float)};
}

// From the second round on, updates of the two before may enter. From the third on the rounds are windows: what was
// admitted in one may enter the next.
inline constexpr std::uint32_t kStalenessMax = 2;
inline std::uint32_t drift_of(std::uint64_t round) { return round >= 3 ? 1 : 0; }
inline constexpr std::uint32_t kFactors[] = {512, 362, 296, 256};
inline std::optional<round::Lateness> late_of(std::uint64_t round) {
  if (round == 1) return std::nullopt;
  round::Lateness late{kStalenessMax, {std::begin(kFactors), std::end(kFactors)}, {}};
  for (std::uint64_t version = round - 1; version > 0 && late.earlier.size() < kStalenessMax;) {
    late.earlier.push_back(model(--version));
  }
  late.drift_max = drift_of(round);
  return late;
}

// ---- updates -----------------------------------------------------------------------------------------------------

// One as it travels, and what its site says of it.
struct Update {
  std::uint64_t round = 1;
  std::uint64_t into = 0;  // the round that it enters; 0: its own
  std::uint64_t submission = 1;
  std::uint64_t weight = 1;
  float value = 0;
  Digest digest{};

  Buffer chunk(std::uint64_t index) const {
    const std::vector<float> values(kLayout.size(index), value);
    return Buffer::copy_of(std::as_bytes(std::span(values)));
  }
  void sum_up() {
    Sha256 hash;
    for (std::uint64_t i = 0; i < kLayout.chunk_count(); ++i) hash.update(chunk(i).span());
    hash.update(round::probe_bytes());
    digest = hash.finish();
  }
};

inline v1::Envelope begin_of(HostId host, const Update& update, Epoch lease) {
  v1::Envelope message;
  v1::UpdateBegin& begin = *message.mutable_update_begin();
  begin.mutable_key()->set_run(kRun.value());
  begin.mutable_key()->set_round(update.round);
  begin.mutable_key()->set_site(node_of(host).value());
  begin.mutable_key()->set_incarnation(1);
  begin.mutable_key()->set_submission(update.submission);
  begin.set_weight(update.weight);
  begin.set_codec("fp32");
  begin.set_value_count(kLayout.value_count);
  begin.set_chunk_count(kLayout.chunk_count());
  begin.set_base_sha256(wire::digest_to_proto(model(update.round - 1).digest));
  begin.set_lease_epoch(lease.value());
  begin.set_into(update.into);
  return message;
}

inline std::string signature_of(HostId host, const v1::UpdateBegin& begin, const Digest& digest) {
  const round::Contribution given{SiteId(begin.key().site()),
                                  Epoch(begin.lease_epoch()),
                                  begin.weight(),
                                  digest,
                                  0,
                                  {},
                                  Incarnation(begin.key().incarnation()),
                                  begin.key().submission()};
  const Result<Digest> base = wire::digest_from_proto(begin.base_sha256());
  return signed_by(host, wire::kContributionKind,
                   wire::contribution_body(RunId(begin.key().run()), RoundId(begin.key().round()),
                                           base.ok() ? *base : Digest{}, given))
      .signature();
}

// ---- a site, as far as its parent sees it ------------------------------------------------------------------------

class Child final : public TownNode {
 public:
  using Heard = std::function<void(const v1::Envelope&)>;
  Child(World& world, HostId host, Heard heard) : TownNode(world, host), heard_(std::move(heard)) {}
  ~Child() override { take_down(); }
  void start() override {}

  void connect(v1::Envelope hello) {
    is_connecting_ = true;
    spawn("session", run(std::move(hello)));
  }
  void say(v1::Envelope message, SharedBytes payload = {}) {
    if (session_ && fits_a_frame(message)) session_->post({std::move(message), std::move(payload)});
  }
  void send(const Update& update, Epoch lease) {
    const v1::Envelope begin = begin_of(host(), update, lease);
    say(begin);
    for (std::uint64_t i = 0; i < kLayout.chunk_count(); ++i) {
      v1::Envelope part;
      part.mutable_update_chunk()->set_index(i);
      say(std::move(part), SharedBytes::from(update.chunk(i)));
    }
    v1::Envelope end;
    end.mutable_update_end()->set_sha256(wire::digest_to_proto(update.digest));
    end.mutable_update_end()->set_signature(signature_of(host(), begin.update_begin(), update.digest));
    say(std::move(end), SharedBytes::from(Buffer::copy_of(round::probe_bytes())));
  }
  bool is_connected() const { return session_ != nullptr && session_->is_open(); }
  bool is_connecting() const { return is_connecting_; }
  void cut() {
    if (session_) session_->close({Code::kUnavailable, "cut"}, false);
  }
  void leave() {  // also those that it has opened another beside
    for (const auto& each : sessions_) {
      if (const auto session = each.lock()) session->close({Code::kUnavailable, "gone"}, false);
    }
  }

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session>) override { co_return; }
  net::Awaitable<void> run(v1::Envelope hello) {
    const tree::Dial call = dial([](const net::HostPort&) { return Answer{kRegion, kRegion}; });
    Result<std::shared_ptr<net::Session>> session = co_await call({"host:1", 1}, Role::kAggregator);
    is_connecting_ = false;
    if (!session.ok()) co_return;
    session_ = *session;
    sessions_.push_back(session_);
    session_->post({std::move(hello), {}});
    const std::shared_ptr<net::Session> own = session_;
    for (;;) {
      const Result<net::Frame> frame = co_await own->receive();
      if (!frame.ok()) break;
      heard_(frame->header);
    }
    if (session_ == own) session_.reset();
  }

  Heard heard_;
  bool is_connecting_ = false;
  std::shared_ptr<net::Session> session_;
  std::vector<std::weak_ptr<net::Session>> sessions_;
};

// ---- their parent ------------------------------------------------------------------------------------------------

class Region final : public TownNode {
 public:
  Region(World& world, HostId host) : TownNode(world, host), report_(runtime().metrics, runtime().log) {}
  ~Region() override { take_down(); }

  void start() override {
    FLUVIAL_CHECK(runtime().files.make_folder("spill").ok(), "a folder in memory");
    tree::HubOptions options;
    options.staging_bytes_max = kStagingBytes;
    options.spill_folder = "spill";
    options.self = node_of(host());
    options.software = "fuzz";
    service_ = std::make_unique<aggregator::RegionService>(runtime(), tasks(), identity_of(world(), host()), report_,
                                                           options, std::chrono::seconds(30));
    tree::UplinkOptions uplink;
    uplink.coordinator = {"host:0", 1};
    uplink.advertise = "host:1";
    uplink.incarnation = Incarnation(1);
    uplink.software = "fuzz";
    uplink.jitter_seed = 1;
    uplink_ = std::make_unique<tree::Uplink>(runtime(), *service_, uplink,
                                             dial([](const net::HostPort&) { return Answer{kRoot, kRoot}; }));
    service_->attach(*uplink_, [](bool) {});
    spawn("sum", service_->run_lane());
    spawn("uplink", uplink_->run());
  }
  aggregator::RegionService& service() { return *service_; }
  void check() {
    const store::StagingBudget& budget = service_->hub().budget();
    FLUVIAL_CHECK(budget.bytes_used() <= kStagingBytes, "more than the budget of staging");
    FLUVIAL_CHECK(budget.bytes_used() + budget.bytes_spilled() <= kHeldBytesMax, "it holds what its children may say");
    FLUVIAL_CHECK(service_->sum().staged_count() <= kSites, "more is staged than its children can bring");
    const auto named = runtime().files.list("spill");
    FLUVIAL_CHECK(named.ok() && named->empty(), "a file that nobody would remove");  // they are unnamed
  }
  bool is_empty() const { return held_bytes() == 0 && service_->sum().staged_count() == 0; }
  std::string held() const {
    return std::to_string(held_bytes()) + " bytes, " + std::to_string(service_->sum().staged_count()) + " updates";
  }

 private:
  std::uint64_t held_bytes() const {
    return service_->hub().budget().bytes_used() + service_->hub().budget().bytes_spilled();
  }
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override {
    return service_->hub().serve(std::move(session));
  }
  aggregator::RegionReport report_;
  std::unique_ptr<aggregator::RegionService> service_;
  std::unique_ptr<tree::Uplink> uplink_;
};

}  // namespace fluvial::fuzz
