// Messages and domain types, both ways. Every count, enum, digest length and number from a peer is checked here, and
// codes are given their numbers on the wire here alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

// What a peer may send at most.
inline constexpr std::size_t kParticipantsMax = 1 << 20;
inline constexpr std::size_t kMetricsMax = 64;
inline constexpr std::size_t kMetricNameBytesMax = 64;
inline constexpr std::size_t kMessageBytesMax = 1024;  // longer texts are cut

// Codes: 0 is ok, the others are fluvial::Code's numbers.
std::uint32_t code_to_proto(Code code);
std::uint32_t status_code_to_proto(const Status& status);
Result<Code> code_from_proto(std::uint32_t code);  // kInvalidArgument for 0 and for a number nobody gave
// The peer's verdict: ok, or its error with a printable, bounded message. An unknown number becomes kInternal.
Status status_from_proto(std::uint32_t code, std::string_view message);
Error error_from_proto(std::uint32_t code, std::string_view message);  // likewise, but 0 becomes kInternal, too

// A text for the wire, for logs and terminals: at most kMessageBytesMax bytes of UTF-8, control characters replaced by
// spaces and what is no UTF-8 by question marks.
std::string printable(std::string_view text);

v1::NodeRole role_to_proto(Role role);
Result<Role> role_from_proto(v1::NodeRole role);

std::string digest_to_proto(const Digest& digest);
Result<Digest> digest_from_proto(const std::string& bytes);

std::string signature_to_proto(const Signature& signature);
Result<Signature> signature_from_proto(const std::string& bytes);  // kInvalidArgument unless 64 bytes

v1::Schema to_proto(const round::Schema& schema);
Result<round::Schema> from_proto(const v1::Schema& schema);
// A schema in parts, where all of it may be longer than one frame's header. put_tensors() adds its tensors from `first`
// on, some `bytes_max` of them and at least one, and gives the index of the next. add_tensors() checks each and adds it
// to those that came before: kInvalidArgument beyond round::kTensorsMax, so a peer decides over some 40 MiB at most.
std::size_t put_tensors(const round::Schema& schema, std::size_t first, std::size_t bytes_max, v1::Schema* out);
Status add_tensors(const v1::Schema& part, std::vector<round::Tensor>* to);

void clear_late(v1::Plan* plan);                       // its keys of late updates and windows
v1::Plan to_proto(const round::Plan& plan);            // without schedules: an opening has the numbers of its round
Result<round::Plan> from_proto(const v1::Plan& plan);  // checked by round::check_plan() as well

v1::Participant to_proto(const round::Participant& participant);
Result<round::Participant> from_proto(const v1::Participant& participant);

// kInvalidArgument: no such pass, or a mean where none is, or the other way round.
Result<round::MadeFrom> made_from_proto(std::uint32_t pass, const std::string& mean);

v1::Contributor to_proto(const round::Contribution& contribution);
Result<round::Contribution> from_proto(const v1::Contributor& contributor);

v1::Refusal to_proto(const round::Refusal& refusal);
Result<round::Refusal> from_proto(const v1::Refusal& refusal);

using MetricsProto = google::protobuf::Map<std::string, double>;
void metrics_to_proto(const round::Metrics& metrics, MetricsProto* out);
Result<round::Metrics> metrics_from_proto(const MetricsProto& metrics);

// What workers are given: the numbers by name, and everything else. Read, it is checked by check_worker_config() as
// well.
using WorkerValuesProto = google::protobuf::RepeatedPtrField<v1::WorkerValue>;
void config_to_proto(const round::WorkerConfig& config, MetricsProto* numbers, WorkerValuesProto* others);
Result<round::WorkerConfig> config_from_proto(const MetricsProto& numbers, const WorkerValuesProto& others);

// Lists. A site appears once, or kInvalidArgument.
using ParticipantList = google::protobuf::RepeatedPtrField<v1::Participant>;
using ContributorList = google::protobuf::RepeatedPtrField<v1::Contributor>;
using RefusalList = google::protobuf::RepeatedPtrField<v1::Refusal>;
using SiteList = google::protobuf::RepeatedField<std::uint32_t>;

void to_proto(const std::vector<round::Participant>& participants, ParticipantList* out);
Result<std::vector<round::Participant>> from_proto(const ParticipantList& participants);
void to_proto(const round::ContributorSet& contributors, ContributorList* out);
Result<round::ContributorSet> from_proto(const ContributorList& contributors);
void to_proto(const std::vector<round::Refusal>& refusals, RefusalList* out);
Result<std::vector<round::Refusal>> from_proto(const RefusalList& refusals);
void to_proto(const std::vector<SiteId>& sites, SiteList* out);
Result<std::vector<SiteId>> from_proto(const SiteList& sites);

}  // namespace fluvial::wire
