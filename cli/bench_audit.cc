#include "cli/bench_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "cli/bench_round.h"
#include "cli/bench_update.h"
#include "core/digest/sha256.h"
#include "core/round/lateness.h"
#include "kernels/reference/dgc.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/ring.h"
#include "kernels/stream_key.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kHistoriesMax = 1 << 14;  // 14 rounds of one site whose update may or may not have been made

std::string sum_sha256(std::span<const std::int64_t> sum) {
  static_assert(std::endian::native == std::endian::little, "digests cover little-endian bytes");
  return to_hex(sha256(std::as_bytes(sum)));
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<std::uint32_t, float>, std::bit_cast<std::uint32_t, float>);
}

// Of 512; a coordinator of an earlier version says none.
double share_of(const json::value& entry) { return 512 * number_member(entry, "share", 1); }

}  // namespace

Audit::Audit(round::Plan plan, std::uint64_t seed, std::uint64_t run, std::vector<AuditSite> sites,
             std::uint64_t weight_max, round::Schema schema)
    : seed_(seed), run_(run), weight_max_(weight_max), schema_(std::move(schema)) {
  for (const AuditSite& site : sites)
    sites_.push_back({.site = site, .carried = std::vector<Carried>(1), .missed = {}});
  continue_as(std::move(plan), run);
}

void Audit::continue_as(round::Plan plan, std::uint64_t run) {
  for (const SiteState& state : sites_) FLUVIAL_CHECK(state.missed.empty(), "a run that is at rest");
  plan_ = std::move(plan);
  run_ = run;
  const auto spec = kernels::parse_codec(plan_.codec);
  FLUVIAL_CHECK(spec.ok(), "the coordinator has accepted the plan's codec");
  const std::unique_ptr<PassesAudit> before = std::move(passes_);
  const bool same = before != nullptr && codec_->spec() == *spec;
  const std::unique_ptr<OnebitAudit> onebit = std::move(onebit_);
  const std::unique_ptr<kernels::Codec> old = std::exchange(codec_, std::move(kernels::make_codec(*spec)).value());
  if (codec_->passes() > 1) {
    passes_ = std::make_unique<PassesAudit>(*codec_, plan_, schema_, same ? before.get() : nullptr);
  }
  if (spec->kind == kernels::CodecKind::kOnebitAdam) {
    onebit_ = std::make_unique<OnebitAudit>(*spec, plan_, onebit.get());
  }
  for (SiteState& state : sites_) {  // a state goes on in a run with the same codec
    if (old != nullptr && old->spec().kind == spec->kind) continue;
    for (Carried& carried : state.carried) carried.state.clear();
  }
  moment_.clear();
  variance_.clear();
  rates_ = {};
}

Status Audit::check_round(const json::value& round, std::span<const float> base, std::span<const float> committed,
                          std::span<const float> trained) {
  FLUVIAL_ASSIGN(const std::vector<float> expected, next_model(round, base, trained));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(committed[i])) {
      return Error{Code::kDataLoss, fmt::format("round {}: coordinate {} is {:a}, expected {:a}",
                                                count_member(round, "round"), i, committed[i], expected[i])};
    }
  }
  return {};
}

int Audit::scale_of(std::uint64_t weight_sum) const {
  const kernels::CodecSpec& spec = codec_->spec();
  const bool votes = spec.kind == kernels::CodecKind::kSign && spec.vote;
  if (votes || spec.kind == kernels::CodecKind::kRing) {
    const int steps = votes ? 0 : kernels::reference::ring_fraction_bits(spec.bits, spec.max);
    return std::max(steps, 0) + (plan_.late == "next" ? 9 : 0);  // an old update counts in 512ths
  }
  // The greatest term is that of a value at its bound, or of a probe, which is 1.
  return kernels::reference::scale_bits(static_cast<int>(plan_.fraction_bits), std::max(plan_.value_abs_max, 1.0),
                                        weight_sum);
}

Result<std::vector<float>> Audit::next_model(const json::value& round, std::span<const float> base,
                                             std::span<const float> trained) {
  if (trained.empty()) trained = base;
  const std::uint64_t number = count_member(round, "round");
  const int scale = scale_of(count_member(round, "participants") * weight_max_);
  const bool is_first = number == 1 || plan_.mode != "async";  // windows keep a scale as long as it has room
  scale_bits_ = is_first ? scale : std::min(scale, scale_bits_);
  for (SiteState& state : sites_) {
    for (Carried& carried : state.carried) {
      carried.residual.resize(base.size());
      if (codec_->spec().kind == kernels::CodecKind::kDgc || onebit_) carried.state.resize(base.size());
    }
  }
  FLUVIAL_ASSIGN(const std::vector<float> mean,
                 passes_ ? mean_update_of_passes(round, trained) : mean_update(round, trained));
  const std::string journalled = text_member(round, "sum_sha256");
  if (!journalled.empty() && journalled != sum_sha256(sum_)) {
    return Error{Code::kDataLoss,
                 fmt::format("round {}: the digest of the integer sum differs from the journal's", number)};
  }
  return stepped(round, base, mean);
}

Status Audit::check_named_once(const json::value& round, const json::array& entries) const {
  std::set<std::uint64_t> known;
  for (const SiteState& state : sites_) known.insert(state.site.node);
  for (const json::value& entry : entries) {
    if (known.erase(count_member(entry, "site")) == 1) continue;
    return Error{Code::kDataLoss, fmt::format("round {}: {} is counted twice, or is no site of ours",
                                              count_member(round, "round"), text_member(entry, "name"))};
  }
  return {};
}

// `kept`: what all who missed the round trained from, once it is copied.
void Audit::miss(SiteState& state, const json::value& round, Base& kept, std::span<const float> trained) const {
  if (!kept) kept = std::make_shared<const std::vector<float>>(trained.begin(), trained.end());
  state.missed.push_back({count_member(round, "round"), kept, momentum()});
}

Result<std::vector<float>> Audit::mean_update(const json::value& round, std::span<const float> trained) {
  const std::uint64_t number = count_member(round, "round");
  const json::array& contributors = array_member(round, "contributors");
  FLUVIAL_TRY(check_named_once(round, contributors));
  sum_.assign(trained.size(), 0);
  std::uint64_t total_weight = 0;
  Base kept;
  for (SiteState& state : sites_) {
    if (const json::value* entry = entry_of(contributors, state.site.node)) {
      if (plan_.mode == "async") miss(state, round, kept, trained);  // what it makes of this model it may bring later
      FLUVIAL_TRY(count(state, *entry, number, trained));
      total_weight += bench_weight(state.site.index);
    } else if (!is_dropped(round, state.site.node)) {
      miss(state, round, kept, trained);
    }
  }
  FLUVIAL_TRY(check_weight(round, count_member(round, "weight"), total_weight));
  FLUVIAL_ASSIGN(const double weight, divided_by(round, total_weight));
  return mean_of_sum(weight);
}

void Audit::undone(std::uint64_t site_index, std::uint64_t round, std::span<const float> base) {
  const auto state = std::ranges::find(sites_, site_index, [](const SiteState& one) { return one.site.index; });
  FLUVIAL_CHECK(state != sites_.end(), "a site of ours");
  state->missed.push_back({round, std::make_shared<const std::vector<float>>(base.begin(), base.end()), momentum()});
}

void Audit::make_update(const AuditSite& site, std::uint64_t round, std::span<const float> base,
                        const OnebitAudit::Momentum& momentum, Carried& carried, std::vector<float>& p) const {
  p.resize(base.size());
  fill_update({.seed = seed_, .round = round, .site_index = site.index}, p);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float local = base[i] - p[i];
    p[i] = base[i] - local;
  }
  const auto dgc = kernels::reference::dgc_options(plan_.codec);
  if (dgc) kernels::reference::dgc_moment(*dgc, carried.state, p);
  if (onebit_) onebit_->exchange(momentum, carried.residual, carried.state);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = (p[i] + carried.residual[i]) + 0.0F;
}

Result<std::vector<History>> Audit::possible(const SiteState& state) {
  std::vector<MissedRound> rounds;
  for (const Missed& missed : state.missed) {
    rounds.push_back({.lends = missed.momentum != nullptr, .certain = missed.certain});
  }
  std::vector<History> histories = histories_of(rounds, kHistoriesMax / state.carried.size());
  if (!histories.empty()) return histories;
  return Error{Code::kFailedPrecondition, fmt::format("site {} trained for {} rounds without being counted",
                                                      state.site.index, state.missed.size())};
}

Audit::Carried Audit::carried_by(const SiteState& state, Carried carried, const History& history) const {
  std::vector<float> p;
  const float left = plan_.late == "next" ? static_cast<float>(parts(plan_.staleness_max + 1)) / 512 : 1.0F;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history[i] == Fate::kLost) continue;
    const Missed& missed = state.missed[i];
    make_update(state.site, missed.round, *missed.base, history[i] == Fate::kSent ? missed.momentum : nullptr, carried,
                p);
    if (left != 1) {
      for (float& value : p) value *= left;
    }
    carried.residual.swap(p);
  }
  return carried;
}

std::vector<Audit::Missed> Audit::really_missed(const SiteState& state, std::uint64_t next) const {
  std::vector<Missed> missed;
  for (Missed one : state.missed) {
    const Made unless_known = plan_.mode == "async" ? Made::kNo : Made::kPerhaps;  // it skips most windows
    const Made made = known_ ? known_(state.site.index, one.round, next) : unless_known;
    one.certain = made == Made::kYes;
    if (made != Made::kNo) missed.push_back(std::move(one));
  }
  return missed;
}

// With windows: of what the site may have made while this one waited.
std::vector<Audit::Missed> Audit::missed_after(const SiteState& state, std::uint64_t round) const {
  std::vector<Missed> later;
  if (plan_.mode != "async") return later;
  std::ranges::copy_if(state.missed, std::back_inserter(later),
                       [round](const Missed& one) { return one.round > round; });
  return later;
}

Status Audit::check_residual(std::uint64_t site_index, std::span<const float> held) const {
  const auto found = std::ranges::find(sites_, site_index, [](const SiteState& state) { return state.site.index; });
  FLUVIAL_CHECK(found != sites_.end(), "a site that is audited");
  SiteState state = *found;
  state.missed = really_missed(state, 0);
  FLUVIAL_ASSIGN(const std::vector<History> histories, possible(state));
  for (const History& history : histories) {
    for (const Carried& carried : state.carried) {
      if (same_bits(carried_by(state, carried, history).residual, held)) return {};
    }
  }
  return Error{Code::kDataLoss, fmt::format("site {} holds another residual than what it trained and what of that was "
                                            "counted leave",
                                            site_index)};
}

// docs/design/late.md, written here anew: of 512 parts.
double Audit::parts(std::uint64_t staleness) const {
  if (plan_.late != "next") return 512;
  const double whole = 512 * std::pow(static_cast<double>(staleness + 1), -plan_.staleness_power);
  return std::max(1.0, std::nearbyint(whole));
}

double Audit::parts_of(const json::value& entry) const {
  const double of_age = parts(count_member(entry, "staleness"));
  return std::max(1.0, std::floor(of_age * share_of(entry) / 512 + 0.5));
}

// The sum of the weights, or in a run that is fair by rate what the windows before say.
Result<double> Audit::divided_by(const json::value& round, std::uint64_t total_weight) {
  if (!round::is_fair(plan_)) return static_cast<double>(total_weight);
  round::ContributorSet in;
  for (const json::value& entry : array_member(round, "contributors")) {
    round::Contribution one{.site = SiteId(static_cast<std::uint32_t>(count_member(entry, "site"))),
                            .weight = count_member(entry, "weight"),
                            .metrics = {},
                            .times = {}};
    one.base = ModelVersion(count_member(entry, "own_round") - 1);
    one.admitted = ModelVersion(one.base.value() + count_member(entry, "staleness"));
    one.share = static_cast<std::uint32_t>(share_of(entry));
    if (rates_.share(one.site, one.admitted) != one.share || !in.add(one).ok()) {
      return Error{Code::kDataLoss, fmt::format("round {}: {} counts for {} of 512, not by its rate",
                                                count_member(round, "round"), text_member(entry, "name"), one.share)};
    }
  }
  const round::Divisor divisor = rates_.divisor(in);
  rates_.committed(ModelVersion(count_member(round, "round")), in,
                   round::staleness_factors(plan_.staleness_max, plan_.staleness_power));
  return std::ldexp(static_cast<double>(divisor.value), -divisor.bits);
}

// The update that the site made for the round `own`, which it missed. What it made after it, with windows while this
// one waited, is still to come.
Result<Audit::Base> Audit::base_of_own(const SiteState& state, std::uint64_t own) const {
  const auto at = std::ranges::find(state.missed, own, &Missed::round);
  if (at == state.missed.end()) {
    return Error{Code::kDataLoss, fmt::format("site {} is counted with an update of round {}, which it did not miss",
                                              state.site.index, own)};
  }
  return at->base;
}

Status Audit::count(SiteState& state, const json::value& entry, std::uint64_t round, std::span<const float> base) {
  const std::uint64_t staleness = count_member(entry, "staleness");
  const std::uint64_t said = count_member(entry, "own_round");  // by a coordinator of this version
  const std::uint64_t made_for = said == 0 ? round - std::min(round, staleness) : said;
  Base own;  // of an update of an earlier round
  if (made_for != round) {
    const std::uint64_t oldest = plan_.late == "next" ? plan_.staleness_max : 0;
    if (made_for > round || round - made_for > oldest || staleness > round - made_for) {
      return Error{Code::kDataLoss,
                   fmt::format("round {}: an update of round {}, {} models old", round, made_for, staleness)};
    }
    FLUVIAL_ASSIGN(own, base_of_own(state, made_for));
    base = *own;
    round = made_for;
  }
  const std::vector<Missed> later = missed_after(state, round);
  const bool may_be_later = plan_.mode == "async" || own != nullptr;
  std::erase_if(state.missed, [&](const Missed& one) { return may_be_later && one.round >= round; });
  const std::string journalled = text_member(entry, "digest");
  std::vector<double> sent;  // by each of the histories that fit
  FLUVIAL_TRY(find_history(state, round, base, [&](Carried& carried, std::vector<float>& p) -> Result<bool> {
    FLUVIAL_ASSIGN(Encoded encoded, encode(state.site, kernels::stream_key(plan_.seed, round, state.site.name), p));
    if (!encoded.is(journalled)) {  // a site of an earlier version draws by numbers
      FLUVIAL_ASSIGN(encoded, encode(state.site, {.run = run_, .round = round, .site = state.site.node}, p));
    }
    if (!encoded.is(journalled)) return false;
    for (std::size_t i = 0; i < p.size(); ++i) carried.residual[i] = p[i] - static_cast<float>(encoded.decoded[i]);
    for (std::size_t i = 0; i < carried.state.size(); ++i) {
      if (onebit_ || encoded.decoded[i] != 0) carried.state[i] = 0;  // it was sent, or is used up
    }
    sent = std::move(encoded.decoded);
    return true;
  }));
  FLUVIAL_TRY(add_decoded(sent, bench_weight(state.site.index), parts_of(entry)));
  state.missed = later;
  return {};
}

Status Audit::find_history(SiteState& state, std::uint64_t round, std::span<const float> base, const Fits& fits) const {
  state.missed = really_missed(state, round);
  FLUVIAL_ASSIGN(const std::vector<History> histories, possible(state));
  std::vector<Carried> fitting;
  const History* fit = nullptr;
  for (const History& history : histories) {
    if (fit != nullptr && !same_losses(*fit, history)) break;
    for (const Carried& before : state.carried) {
      Carried carried = carried_by(state, before, history);
      std::vector<float> p;
      make_update(state.site, round, base, momentum(), carried, p);
      FLUVIAL_ASSIGN(const bool fitted, fits(carried, p));
      if (!fitted) continue;
      fit = &history;
      if (std::ranges::find(fitting, carried) == fitting.end()) fitting.push_back(std::move(carried));
    }
  }
  if (fit != nullptr) {
    state.carried = std::move(fitting);
    state.missed.clear();
    return {};
  }
  return Error{Code::kDataLoss, fmt::format("round {}: what site {} sent is not what its update and its residual give, "
                                            "with any of its {} late updates in it or not",
                                            round, state.site.index, state.missed.size())};
}

Result<Encoded> Audit::encode(const AuditSite& site, const kernels::StreamKey& key, std::span<const float> p) const {
  const kernels::VectorSchema schema{.layout = {.value_count = p.size(), .chunk_values = plan_.chunk_values},
                                     .tensors = {}};
  Buffer codec_state(codec_->state_bytes(schema));
  std::fill(codec_state.span().begin(), codec_state.span().end(), std::byte{0});
  Buffer workspace(codec_->workspace_bytes(schema));
  FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                 codec_->prepare(schema, p, key, {}, codec_state.span(), workspace.span()));
  return encode_all(*codec_, plan, trailer_of(site, key.round));
}

std::vector<std::byte> Audit::trailer_of(const AuditSite& site, std::uint64_t round) const {
  return bench_trailer({.seed = seed_, .round = round, .site_index = site.index},
                       static_cast<std::size_t>(schema_.integer_count()));
}

// value * weight is exact (24 + 29 bits), so is its product with a power of two: one rounding, half to even.
Status Audit::add_decoded(std::span<const double> decoded, std::uint64_t weight, double of_512) {
  const double factor = std::ldexp(static_cast<double>(weight) * of_512, scale_bits_ - 9);
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    const double term = std::nearbyint(decoded[i] * factor);
    if (!(std::fabs(term) <= 0x1p62)) return Error{Code::kDataLoss, "a term of the sum is beyond 2^62"};
    sum_[i] += static_cast<std::int64_t>(term);
  }
  return {};
}

float Audit::step(std::uint64_t round, std::size_t i, float model, float mean, double lr) {
  const round::ServerOptimizer& o = plan_.optimizer;
  const auto to_model = [&](double direction) {
    return static_cast<float>(static_cast<double>(model) - lr * direction);
  };
  switch (o.kind) {
    case round::Optimizer::kFedAvgM:
      moment_[i] = static_cast<float>(o.momentum * static_cast<double>(moment_[i]) + static_cast<double>(mean));
      return to_model(static_cast<double>(moment_[i]));
    case round::Optimizer::kNesterov:
      moment_[i] = static_cast<float>(o.momentum * static_cast<double>(moment_[i]) + static_cast<double>(mean));
      return to_model(static_cast<double>(mean) + o.momentum * static_cast<double>(moment_[i]));
    case round::Optimizer::kDelayedNesterov: {
      const auto n = static_cast<double>(o.every);
      const bool nth = round % o.every == 0;
      variance_[i] += mean;
      if (nth) {
        const double taken = 1 / n * static_cast<double>(std::exchange(variance_[i], 0.0F));
        moment_[i] = static_cast<float>(o.momentum * static_cast<double>(moment_[i]) + taken);
      }
      const double ahead = (nth ? 1 - o.c * n + o.c : o.c) * o.momentum;
      return to_model(1 / n * static_cast<double>(mean) + ahead * static_cast<double>(moment_[i]));
    }
    case round::Optimizer::kFedAdagrad:
    case round::Optimizer::kFedAdam:
    case round::Optimizer::kFedYogi: {
      const float square = mean * mean;
      moment_[i] = static_cast<float>(o.beta1) * moment_[i] + static_cast<float>(1 - o.beta1) * mean;
      float& v = variance_[i];
      const auto rest = static_cast<float>(1 - o.beta2);
      if (o.kind == round::Optimizer::kFedAdagrad) v = v + square;
      if (o.kind == round::Optimizer::kFedAdam) v = static_cast<float>(o.beta2) * v + rest * square;
      if (o.kind == round::Optimizer::kFedYogi && v != square) v = v > square ? v - rest * square : v + rest * square;
      return model - static_cast<float>(lr) * (moment_[i] / (std::sqrt(v) + static_cast<float>(o.tau)));
    }
    case round::Optimizer::kSignSgd: return to_model(mean == 0 ? 0.0 : std::copysign(1.0, static_cast<double>(mean)));
    default: return to_model(static_cast<double>(mean));
  }
}

std::vector<float> Audit::mean_of_sum(double weight) const {
  const double divisor = std::ldexp(1.0, scale_bits_);
  std::vector<float> mean(sum_.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    mean[i] = static_cast<float>(static_cast<double>(sum_[i]) / divisor / weight);
  }
  return mean;
}

Result<std::vector<float>> Audit::stepped(const json::value& round, std::span<const float> base,
                                          std::span<const float> mean) {
  const std::uint64_t number = count_member(round, "round");
  const double lr = round::learning_rate(plan_.optimizer, number, count_member(round, "weight"));
  if (onebit_) return onebit_->step(round, lr, base, mean);
  moment_.resize(base.size());
  auto least_variance = static_cast<float>(plan_.optimizer.tau * plan_.optimizer.tau);  // tau^2, rounded up
  if (static_cast<double>(least_variance) < plan_.optimizer.tau * plan_.optimizer.tau) {
    least_variance = std::nextafter(least_variance, 1.0F);
  }
  const bool sums = plan_.optimizer.kind == round::Optimizer::kDelayedNesterov;
  variance_.resize(base.size(), sums ? 0.0F : least_variance);
  std::vector<float> model(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) model[i] = step(number, i, base[i], mean[i], lr);
  return model;
}

}  // namespace fluvial::cli
