#include "tests/chaos/auditor.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench_update.h"
#include "core/round/schema.h"
#include "core/store/safetensors.h"

namespace fluvial::chaos {
namespace {

using cli::count_member;
using cli::text_member;
using cli::json::value;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAskAgain{50};  // a coordinator that is down
constexpr std::uint64_t kListedMax = 1'000;

store::ModelStore open_models(store::PosixFileSystem& files, const std::string& folder) {
  auto models = store::ModelStore::open(files, folder);
  FLUVIAL_CHECK(models.ok(), "the coordinator has made its folder of models");
  return std::move(*models);
}

}  // namespace

Auditor::Auditor(cli::AdminClient admin, Audited what, std::optional<cli::Audit> audit)
    : admin_(std::move(admin)),
      what_(std::move(what)),
      models_(open_models(files_, what_.models_folder)),
      audit_(audit ? std::move(*audit)
                   : cli::Audit(what_.plan, what_.seed, what_.run, what_.sites, cli::kBenchWeightMax, what_.schema)),
      log_(what_.plan.quorum, what_.plan.mode == "async") {
  audit_.continue_as(what_.plan, what_.run);
  audit_.set_known(what_.known);
  progress_.last_commit = steady_clock::now();
  thread_ = std::thread([this] { follow(); });
}

Auditor::~Auditor() { finish(); }

void Auditor::finish() {
  stop();
  if (thread_.joinable()) thread_.join();
}

Progress Auditor::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

Progress Auditor::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return changes_ != seen_; });
  seen_ = changes_;
  return progress_;
}

// Each time from the last round heard of: a coordinator that was started again must say the same of it.
void Auditor::follow() {
  Status held;
  while (!stopping_ && held.ok()) {
    const std::string from =
        fmt::format("/v1/rounds/watch?run={}&from={}", what_.run, std::max<std::uint64_t>(1, log_.last()));
    const Status watched = admin_.watch(from, [&](const value& event) {
      held = on_event(event);
      return held.ok() && !stopping_;
    });
    (void)watched.ok();  // it was killed, or is not up yet
    std::this_thread::sleep_for(kAskAgain);
  }
  const std::lock_guard lock(mutex_);
  if (!held.ok()) progress_.violation = held.error();
  ++changes_;
  changed_.notify_all();
}

Status Auditor::on_event(const value& event) {
  const std::string kind = text_member(event, "event");
  if (kind == "committed") return on_commit(event);
  if (kind != "state") return {};
  const std::lock_guard lock(mutex_);
  progress_.status = text_member(event, "status") == "running" ? "" : text_member(event, "status");
  progress_.reason = text_member(event, "reason");
  ++changes_;
  changed_.notify_all();
  return {};
}

Result<Auditor::ModelValues> Auditor::read_model(std::uint64_t version, const std::string& sha256) const {
  const std::string path = models_.path_of({RunId(what_.run), ModelVersion(version)});
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const store::Model model, store::read_model(files, path));
  const std::string found = to_hex(store::model_digest(model.bytes.span()));
  if (!sha256.empty() && found != sha256) {
    return Error{Code::kDataLoss, fmt::format("{} has the digest {}, and the journal says {}", path, found, sha256)};
  }
  ModelValues read{std::vector<float>(static_cast<std::size_t>(model.schema.value_count())),
                   std::vector<std::int64_t>(static_cast<std::size_t>(model.schema.integer_count()))};
  round::split_model(model.schema, model.bytes.span(), read.values, read.integers);
  return read;
}

// The greatest that any contributor or the base has.
Status Auditor::check_integers(const value& round, const ModelValues& committed) const {
  std::vector<std::int64_t> expected = base_.integers;
  for (const value& entry : cli::array_member(round, "contributors")) {
    const auto site = std::ranges::find(what_.sites, count_member(entry, "site"), &cli::AuditSite::node);
    if (site == what_.sites.end()) continue;  // the audit has said so
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const std::uint64_t own_round = count_member(entry, "own_round");
      const cli::UpdateStream stream{.seed = what_.seed, .round = own_round, .site_index = site->index};
      expected[k] = std::max(expected[k], cli::bench_integer(stream, k));
    }
  }
  if (expected == committed.integers) return {};
  return Error{Code::kDataLoss,
               fmt::format("round {}: the model's integers are {}, expected {}", count_member(round, "round"),
                           fmt::join(committed.integers, " "), fmt::join(expected, " "))};
}

Status Auditor::on_commit(const value& round) {
  const auto heard = steady_clock::now();
  FLUVIAL_ASSIGN(const bool is_new, log_.add(round));
  if (!is_new) return {};
  const std::uint64_t number = count_member(round, "round");
  if (base_.values.empty()) {
    FLUVIAL_ASSIGN(base_, read_model(0, ""));
  }
  FLUVIAL_ASSIGN(ModelValues committed, read_model(number, text_member(round, "model_sha256")));
  FLUVIAL_TRY(audit_.check_round(round, base_.values, committed.values));
  FLUVIAL_TRY(check_integers(round, committed));
  base_ = std::move(committed);

  const std::lock_guard lock(mutex_);
  gaps_.push_back({progress_.last_commit, heard, number, count_member(round, "attempt")});
  progress_.longest_gap = std::max(progress_.longest_gap, heard - progress_.last_commit);
  progress_.last_commit = heard;
  progress_.status.clear();  // it runs, though nobody may have said so: a coordinator that was started again does not
  progress_.committed = number;
  progress_.model_sha256 = text_member(round, "model_sha256");
  progress_.contributors = cli::array_member(round, "contributors").size();
  progress_.attempt = count_member(round, "attempt");
  if (progress_.contributors == what_.sites.size()) progress_.complete.push_back(number);
  ++changes_;
  changed_.notify_all();
  return {};
}

Status Auditor::check_journal(const cli::AdminClient& admin) {
  std::uint64_t listed = 0;
  for (;;) {
    FLUVIAL_ASSIGN(const value page,
                   admin.get(fmt::format("/v1/rounds?run={}&from={}&limit={}", what_.run, listed + 1, kListedMax)));
    const auto& rounds = cli::array_member(page, "rounds");
    if (rounds.empty()) break;
    for (const value& round : rounds) {
      if (count_member(round, "round") != ++listed) {
        return Error{Code::kDataLoss, fmt::format("the journal lists round {} in place of round {}",
                                                  count_member(round, "round"), listed)};
      }
      FLUVIAL_ASSIGN(const bool is_new, log_.add(round));
      if (is_new) return Error{Code::kDataLoss, fmt::format("nobody was told of round {}", listed)};
    }
  }
  if (listed == log_.last()) return {};
  return Error{Code::kDataLoss, fmt::format("the journal lists {} rounds of {}", listed, log_.last())};
}

Status Auditor::check_residual(std::uint64_t site_index, std::span<const float> held) {
  return audit_.check_residual(site_index, held);
}

}  // namespace fluvial::chaos
