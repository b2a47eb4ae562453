#include "core/wire/mapping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/base/printable.h"
#include "core/round/pass.h"
#include "core/round/plan_keys.h"
#include "core/round/reported.h"

namespace fluvial::wire {
namespace {

using round::Milliseconds;
using round::MissingWorkers;
using round::ServerOptimizer;

constexpr Code kCodes[] = {
    Code::kInvalidArgument, Code::kNotFound,          Code::kAlreadyExists,      Code::kPermissionDenied,
    Code::kUnauthenticated, Code::kResourceExhausted, Code::kFailedPrecondition, Code::kStale,
    Code::kDataLoss,        Code::kDeadlineExceeded,  Code::kUnavailable,        Code::kCancelled,
    Code::kInternal,        Code::kConflict,
};

Error wrong(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Result<SiteId> site_from_proto(std::uint32_t site) {
  if (site == 0) return wrong("site 0: expected a node's number");
  return SiteId(site);
}

// Converts a list whose elements name a site each, at most once.
template <typename T, typename List>
Result<std::vector<T>> list_from_proto(const List& list) {
  if (static_cast<std::size_t>(list.size()) > kParticipantsMax) return wrong("a list of more than 2^20 sites");
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(list.size()));
  std::unordered_set<SiteId> sites;
  for (const auto& element : list) {
    FLUVIAL_ASSIGN(T converted, from_proto(element));
    if (!sites.insert(converted.site).second) {
      return wrong("site " + std::to_string(converted.site.value()) + " is named twice");
    }
    out.push_back(std::move(converted));
  }
  return out;
}

// The field of one key, found by the number that plan_keys.h gives it.
struct PlanField {
  const google::protobuf::FieldDescriptor* field;
  const google::protobuf::Reflection& how = *v1::Plan::GetReflection();

  explicit PlanField(const round::PlanKey& key) : field(v1::Plan::descriptor()->FindFieldByNumber(key.wire_field)) {
    FLUVIAL_CHECK(field != nullptr, "every key of a plan has its field in wire.proto");
  }

  void put(v1::Plan& out, const std::string& value) const { how.SetString(&out, field, value); }
  void put(v1::Plan& out, std::uint64_t value) const { how.SetUInt64(&out, field, value); }
  void put(v1::Plan& out, std::uint32_t value) const { how.SetUInt32(&out, field, value); }
  void put(v1::Plan& out, double value) const { how.SetDouble(&out, field, value); }
  // An `optional` one is true where it is absent, as from a sender that does not know it.
  void put(v1::Plan& out, bool value) const {
    if (!field->has_presence() || !value) how.SetBool(&out, field, value);
  }
  void put(v1::Plan& out, Milliseconds value) const { put(out, static_cast<std::uint64_t>(value.count())); }
  void put(v1::Plan& out, MissingWorkers value) const { put(out, std::string(round::missing_workers_name(value))); }
  void put(v1::Plan& out, const ServerOptimizer& value) const { put(out, round::to_string(value)); }
  void put(v1::Plan& out, const round::WorkerTable& table) const {
    config_to_proto(table.values, out.mutable_worker(), out.mutable_worker_values());
  }

  Status get(const v1::Plan& in, std::string& to) const { return to = how.GetString(in, field), Status(); }
  Status get(const v1::Plan& in, std::uint64_t& to) const { return to = how.GetUInt64(in, field), Status(); }
  Status get(const v1::Plan& in, std::uint32_t& to) const { return to = how.GetUInt32(in, field), Status(); }
  Status get(const v1::Plan& in, double& to) const { return to = how.GetDouble(in, field), Status(); }
  Status get(const v1::Plan& in, bool& to) const {
    return to = how.GetBool(in, field) || (field->has_presence() && !how.HasField(in, field)), Status();
  }
  Status get(const v1::Plan& in, Milliseconds& to) const {
    const std::uint64_t ms = how.GetUInt64(in, field);
    // Durations are signed in the domain; check_plan() bounds them further.
    if (ms > std::numeric_limits<std::int64_t>::max() / 2'000'000) return wrong("a deadline that no clock holds");
    return to = Milliseconds(ms), Status();
  }
  Status get(const v1::Plan& in, MissingWorkers& to) const {
    const std::string name = how.GetString(in, field);
    if (name.empty()) return {};  // of a sender that does not know the key
    const Result<MissingWorkers> missing = round::missing_workers_from_name(name);
    if (!missing.ok()) return wrong("workers.missing: " + missing.error().message);
    return to = *missing, Status();
  }
  Status get(const v1::Plan& in, ServerOptimizer& to) const {
    return round::assign(to, round::parse_server_optimizer(how.GetString(in, field)));
  }
  Status get(const v1::Plan& in, round::WorkerTable& to) const {
    return round::assign(to.values, config_from_proto(in.worker(), in.worker_values()));
  }
};

// Durations on the wire: whole microseconds, a day at most.
constexpr std::uint64_t kDayUs = 86'400'000'000;
std::uint64_t to_us(Duration time) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(us, 0)), kDayUs);
}
Duration from_us(std::uint64_t us) { return std::chrono::microseconds(std::min(us, kDayUs)); }

}  // namespace

// ---- codes and texts ---------------------------------------------------------------------------------------------

std::uint32_t code_to_proto(Code code) { return static_cast<std::uint32_t>(code); }

std::uint32_t status_code_to_proto(const Status& status) {
  return status.ok() ? 0 : code_to_proto(status.error().code);
}

Result<Code> code_from_proto(std::uint32_t code) {
  for (const Code known : kCodes) {
    if (code_to_proto(known) == code) return known;
  }
  return wrong("code " + std::to_string(code) + ": not a code of this protocol");
}

Error error_from_proto(std::uint32_t code, std::string_view message) {
  const auto known = code_from_proto(code);
  if (known.ok()) return {*known, message.empty() ? "it says no reason" : printable(message)};
  return {Code::kInternal, "unknown code " + std::to_string(code) + ": " + printable(message)};
}

Status status_from_proto(std::uint32_t code, std::string_view message) {
  if (code == 0) return {};
  return error_from_proto(code, message);
}

std::string printable(std::string_view text) { return fluvial::printable(text, kMessageBytesMax); }

// ---- roles, digests, metrics -------------------------------------------------------------------------------------

v1::NodeRole role_to_proto(Role role) {
  switch (role) {
    case Role::kCoordinator: return v1::NODE_ROLE_COORDINATOR;
    case Role::kAggregator: return v1::NODE_ROLE_AGGREGATOR;
    case Role::kSite: return v1::NODE_ROLE_SITE;
    case Role::kOperator: return v1::NODE_ROLE_OPERATOR;
  }
  return v1::NODE_ROLE_UNSPECIFIED;
}

Result<Role> role_from_proto(v1::NodeRole role) {
  switch (role) {
    case v1::NODE_ROLE_COORDINATOR: return Role::kCoordinator;
    case v1::NODE_ROLE_AGGREGATOR: return Role::kAggregator;
    case v1::NODE_ROLE_SITE: return Role::kSite;
    case v1::NODE_ROLE_OPERATOR: return Role::kOperator;
    default:
      return wrong("role " + std::to_string(static_cast<int>(role)) +
                   ": expected coordinator, aggregator, site, operator");
  }
}

std::string digest_to_proto(const Digest& digest) { return std::string(as_text(digest)); }

Result<Digest> digest_from_proto(const std::string& bytes) { return digest_from_bytes(as_byte_span(bytes)); }

void metrics_to_proto(const round::Metrics& metrics, MetricsProto* out) {
  for (const auto& [name, value] : metrics) (*out)[name] = value;
}

std::string signature_to_proto(const Signature& signature) { return std::string(as_text(signature)); }
Result<Signature> signature_from_proto(const std::string& bytes) {
  Signature signature;
  if (bytes.size() != signature.size()) return wrong("a signature of " + std::to_string(bytes.size()) + " bytes");
  std::ranges::copy(as_byte_span(bytes), signature.begin());
  return signature;
}

Result<round::Metrics> metrics_from_proto(const MetricsProto& metrics) {
  if (metrics.size() > kMetricsMax) return wrong("more than " + std::to_string(kMetricsMax) + " metrics");
  round::Metrics out;
  for (const auto& [name, value] : metrics) {
    if (!round::is_metric_name(name)) {
      return wrong("a metric's name: expected 1 to " + std::to_string(kMetricNameBytesMax) +
                   " printable ASCII characters, no blanks");
    }
    out.emplace(name, value);  // NaN and infinities pass: a loss may be one, and is then in no mean
  }
  return out;
}

// ---- schema and plan ---------------------------------------------------------------------------------------------

namespace {

void put_tensor(const round::Tensor& tensor, v1::Tensor* out) {
  out->set_name(tensor.name);
  out->set_dtype(std::string(round::dtype_name(tensor.dtype)));
  for (const std::uint64_t dimension : tensor.shape) out->add_shape(dimension);
}

}  // namespace

v1::Schema to_proto(const round::Schema& schema) {
  v1::Schema out;
  for (const round::Tensor& tensor : schema.tensors()) put_tensor(tensor, out.add_tensors());
  return out;
}

std::size_t put_tensors(const round::Schema& schema, std::size_t first, std::size_t bytes_max, v1::Schema* out) {
  std::size_t bytes = 0;
  std::size_t next = first;
  // A header has room for a message in each 16 bytes of it, and for some more (frame.h): short names reach that first.
  const auto is_full = [&] { return bytes >= bytes_max || (next - first) * 16 > bytes + 512; };
  for (; next < schema.tensors().size() && (next == first || !is_full()); ++next) {
    put_tensor(schema.tensors()[next], out->add_tensors());
    bytes += out->tensors(out->tensors_size() - 1).ByteSizeLong() + 2;  // tag and length, at least
  }
  return next;
}

Status add_tensors(const v1::Schema& part, std::vector<round::Tensor>* to) {
  if (to->size() + static_cast<std::size_t>(part.tensors_size()) > round::kTensorsMax) {
    return wrong("more than 65536 tensors");
  }
  to->reserve(to->size() + static_cast<std::size_t>(part.tensors_size()));
  for (const v1::Tensor& tensor : part.tensors()) {
    FLUVIAL_ASSIGN(const round::DType dtype, round::dtype_from_name(tensor.dtype()));
    if (tensor.name().size() > round::kTensorNameBytesMax) return wrong("a tensor's name has 1 to 512 bytes");
    if (static_cast<std::size_t>(tensor.shape_size()) > round::kTensorRankMax) {
      return wrong("tensor '" + printable(tensor.name()) + "' has more than 8 dimensions");
    }
    to->push_back({tensor.name(), dtype, {tensor.shape().begin(), tensor.shape().end()}});
  }
  return {};
}

Result<round::Schema> from_proto(const v1::Schema& schema) {
  std::vector<round::Tensor> tensors;
  FLUVIAL_TRY(add_tensors(schema, &tensors));
  return round::Schema::make(std::move(tensors));
}

namespace {

void clear_async(v1::Plan* plan) {
  plan->clear_mode();
  plan->clear_async_goal();
  plan->clear_async_lead_max();
  plan->clear_async_drift_max();
  plan->clear_async_fairness();
}

}  // namespace

void clear_late(v1::Plan* plan) {
  plan->clear_late();
  plan->clear_staleness_max();
  plan->clear_staleness_power();
  clear_async(plan);
}

v1::Plan to_proto(const round::Plan& plan) {
  v1::Plan out;
  visit_plan(plan, [&](const round::PlanKey& key, const auto& value) { PlanField(key).put(out, value); });
  if (plan.optimizer.averaged == round::kStatistics) out.clear_optimizer_averaged();
  if (plan.down == round::Plan().down) out.clear_down();  // as from a sender that does not know it
  if (!round::late_is_next(plan)) clear_late(&out);
  if (!round::is_async(plan)) clear_async(&out);
  if (!round::is_fair(plan)) out.clear_async_fairness();
  return out;
}

Result<round::Plan> from_proto(const v1::Plan& plan) {
  if (plan.codec().empty() || plan.codec().size() > 64) return wrong("codec: expected a name of 1 to 64 bytes");
  round::Plan out;
  FLUVIAL_TRY(try_plan(out, [&](const round::PlanKey& key, auto& value) { return PlanField(key).get(plan, value); }));
  if (out.optimizer.averaged.empty()) out.optimizer.averaged = round::kStatistics;
  if (out.down.empty()) out.down = round::Plan().down;
  if (out.late.empty()) {
    const round::Plan absent;
    out.late = absent.late;
    out.staleness_max = absent.staleness_max;
    out.staleness_power = absent.staleness_power;
  }
  if (out.mode.empty()) {
    const round::Plan absent;
    out.mode = absent.mode;
    out.async_goal = absent.async_goal;
    out.async_lead_max = absent.async_lead_max;
    out.async_drift_max = absent.async_drift_max;
  }
  if (out.async_fairness.empty()) out.async_fairness = round::Plan().async_fairness;
  FLUVIAL_TRY(round::check_plan(out));
  return out;
}

// ---- who takes part ----------------------------------------------------------------------------------------------

namespace {

std::uint32_t share_to_proto(std::uint32_t share) { return share == round::kWholeFactor ? 0 : share; }

Result<std::uint32_t> share_from_proto(std::uint32_t share) {
  if (share > round::kWholeFactor) return wrong("a share of " + std::to_string(share) + ": expected at most 512");
  return share == 0 ? round::kWholeFactor : share;
}

}  // namespace

v1::Participant to_proto(const round::Participant& participant) {
  v1::Participant out;
  out.set_site(participant.site.value());
  out.set_lease_epoch(participant.lease.value());
  out.set_weight_max(participant.weight_max);
  out.set_share(share_to_proto(participant.share));
  return out;
}

Result<round::Participant> from_proto(const v1::Participant& participant) {
  FLUVIAL_ASSIGN(const SiteId site, site_from_proto(participant.site()));
  if (participant.weight_max() == 0 || participant.weight_max() >= round::kWeightLimit) {
    return wrong("maximum weight " + std::to_string(participant.weight_max()) + ": expected 1 to below 2^29");
  }
  FLUVIAL_ASSIGN(const std::uint32_t share, share_from_proto(participant.share()));
  return round::Participant{site, Epoch(participant.lease_epoch()), participant.weight_max(), share};
}

Result<round::MadeFrom> made_from_proto(std::uint32_t pass, const std::string& mean) {
  if (pass >= round::kPassesMost) return wrong(round::pass_name(pass));
  round::MadeFrom from{pass, {}};
  if (pass == 0 && mean.empty()) return from;
  FLUVIAL_ASSIGN(from.mean, digest_from_proto(mean));
  return pass > 0 ? Result<round::MadeFrom>(from) : wrong("a mean that the first pass has not");
}

v1::Contributor to_proto(const round::Contribution& contribution) {
  v1::Contributor out;
  out.set_site(contribution.site.value());
  out.set_lease_epoch(contribution.lease.value());
  out.set_weight(contribution.weight);
  out.set_sha256(digest_to_proto(contribution.digest));
  out.set_probe(contribution.probe);
  out.set_incarnation(contribution.incarnation.value());
  out.set_submission(contribution.submission);
  out.set_base_version(contribution.base.value());
  out.set_admitted_version(contribution.admitted.value());
  out.set_share(share_to_proto(contribution.share));
  if (contribution.from.pass > 0) {
    out.set_pass(contribution.from.pass);
    out.set_mean_sha256(digest_to_proto(contribution.from.mean));
  }
  out.set_train_us(to_us(contribution.times.train));
  out.set_transfer_us(to_us(contribution.times.transfer));
  out.set_merge_us(to_us(contribution.times.merge));
  metrics_to_proto(contribution.metrics, out.mutable_metrics());
  if (contribution.signature) out.set_signature(signature_to_proto(*contribution.signature));
  return out;
}

Result<round::Contribution> from_proto(const v1::Contributor& contributor) {
  round::Contribution out;
  FLUVIAL_ASSIGN(out.site, site_from_proto(contributor.site()));
  FLUVIAL_ASSIGN(out.digest, digest_from_proto(contributor.sha256()));
  FLUVIAL_ASSIGN(out.metrics, metrics_from_proto(contributor.metrics()));
  if (contributor.weight() == 0 || contributor.weight() >= round::kWeightLimit) {
    return wrong("weight " + std::to_string(contributor.weight()) + ": expected 1 to below 2^29");
  }
  out.lease = Epoch(contributor.lease_epoch());
  out.weight = contributor.weight();
  out.probe = contributor.probe();
  out.incarnation = Incarnation(contributor.incarnation());
  out.submission = contributor.submission();
  out.base = ModelVersion(contributor.base_version());
  out.admitted = ModelVersion(contributor.admitted_version());
  FLUVIAL_ASSIGN(out.share, share_from_proto(contributor.share()));
  FLUVIAL_ASSIGN(out.from, made_from_proto(contributor.pass(), contributor.mean_sha256()));
  if (out.base > out.admitted) return wrong("a contribution from a later model than its parent knew");
  out.times = {from_us(contributor.train_us()), from_us(contributor.transfer_us()), from_us(contributor.merge_us())};
  if (!contributor.signature().empty()) {
    FLUVIAL_ASSIGN(out.signature, signature_from_proto(contributor.signature()));
  }
  return out;
}

v1::Refusal to_proto(const round::Refusal& refusal) {
  v1::Refusal out;
  out.set_site(refusal.site.value());
  out.set_code(code_to_proto(refusal.error.code));
  out.set_message(printable(refusal.error.message));
  out.set_own_round(refusal.own.value());
  for (const round::Contribution& one : refusal.proof) *out.add_proof() = to_proto(one);
  return out;
}

Result<round::Refusal> from_proto(const v1::Refusal& refusal) {
  FLUVIAL_ASSIGN(const SiteId site, site_from_proto(refusal.site()));
  if (refusal.code() == 0) return wrong("a refusal without a code");
  round::Refusal out{site, error_from_proto(refusal.code(), refusal.message()), RoundId(refusal.own_round())};
  // Made of what a hostile site said: one that is not well-formed proves nothing, and is nobody's fault on its way.
  for (const v1::Contributor& one : refusal.proof()) {
    if (out.proof.size() == 2) break;
    Result<round::Contribution> content = from_proto(one);
    if (!content.ok() || content->site != site) continue;
    content->metrics.clear();
    out.proof.push_back(std::move(*content));
  }
  return out;
}

// ---- lists -------------------------------------------------------------------------------------------------------

void to_proto(const std::vector<round::Participant>& participants, ParticipantList* out) {
  for (const round::Participant& participant : participants) *out->Add() = to_proto(participant);
}

Result<std::vector<round::Participant>> from_proto(const ParticipantList& participants) {
  return list_from_proto<round::Participant>(participants);
}

void to_proto(const round::ContributorSet& contributors, ContributorList* out) {
  for (const auto& [site, contribution] : contributors.entries()) *out->Add() = to_proto(contribution);
}

Result<round::ContributorSet> from_proto(const ContributorList& contributors) {
  if (static_cast<std::size_t>(contributors.size()) > kParticipantsMax) return wrong("more than 2^20 contributors");
  round::ContributorSet out;
  for (const v1::Contributor& contributor : contributors) {
    FLUVIAL_ASSIGN(round::Contribution contribution, from_proto(contributor));
    if (const Status added = out.add(std::move(contribution)); !added.ok()) return wrong(added.error().message);
  }
  return out;
}

void to_proto(const std::vector<round::Refusal>& refusals, RefusalList* out) {
  for (const round::Refusal& refusal : refusals) *out->Add() = to_proto(refusal);
}

Result<std::vector<round::Refusal>> from_proto(const RefusalList& refusals) {
  return list_from_proto<round::Refusal>(refusals);
}

void to_proto(const std::vector<SiteId>& sites, SiteList* out) {
  out->Reserve(static_cast<int>(sites.size()));
  for (const SiteId site : sites) out->Add(site.value());
}

Result<std::vector<SiteId>> from_proto(const SiteList& sites) {
  if (static_cast<std::size_t>(sites.size()) > kParticipantsMax) return wrong("a list of more than 2^20 sites");
  std::vector<SiteId> out;
  out.reserve(static_cast<std::size_t>(sites.size()));
  std::unordered_set<SiteId> seen;
  for (const std::uint32_t site : sites) {
    FLUVIAL_ASSIGN(const SiteId id, site_from_proto(site));
    if (!seen.insert(id).second) return wrong("site " + std::to_string(site) + " is named twice");
    out.push_back(id);
  }
  return out;
}

}  // namespace fluvial::wire
