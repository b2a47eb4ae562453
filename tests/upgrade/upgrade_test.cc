// The fixtures of each version, with today's code.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/local/frame.h"
#include "core/local/message.h"
#include "core/transfer/head.h"
#include "core/wire/frame.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/report_mapping.h"
#include "kernels/codec.h"
#include "tests/upgrade/believer.h"
#include "tests/upgrade/recorded_versions.h"
#include "tests/upgrade/recording.h"
#include "tests/upgrade/signing.h"

namespace fluvial::upgrade {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;

constexpr const char* kRecord =
    "a format changed: record the fixtures of this version anew with ./dev fixtures, and say so in CHANGELOG.md";

class EachVersion : public testing::TestWithParam<std::string> {
 protected:
  static std::string file(const std::string& name) {
    return std::string(FLUVIAL_FIXTURES) + "/" + GetParam() + "/" + name;
  }
  static std::string text(const std::string& name) {
    std::string found = text_of_file(file(name));
    EXPECT_FALSE(found.empty()) << file(name) << " is not there";
    return found;
  }
  // A copy that may be opened.
  std::string copy_of(const std::string& name) {
    std::filesystem::copy(file(name), copies_.path() + "/" + name, std::filesystem::copy_options::recursive);
    return copies_.path() + "/" + name;
  }
  static std::vector<SessionFrame> session() {
    auto frames = session_from_text(text("session.txt"));
    EXPECT_TRUE(frames.ok()) << frames.error().to_string();
    return frames.ok() ? std::move(*frames) : std::vector<SessionFrame>();
  }
  TemporaryFolder copies_;
};

INSTANTIATE_TEST_SUITE_P(Fixtures, EachVersion, testing::ValuesIn(upgrade::recorded_versions()), [](const auto& info) {
  std::string name = "v" + info.param;
  std::ranges::replace(name, '.', '_');
  return name;
});

ByteSpan header_bytes(const SessionFrame& frame) { return as_byte_span(frame.head).subspan(wire::kPrefixBytes); }

TEST_P(EachVersion, FramesOfASessionSayWhatTheySaid) {
  const std::vector<SessionFrame> frames = session();
  EXPECT_GT(frames.size(), 20U);
  for (const SessionFrame& frame : frames) {
    ASSERT_GT(frame.head.size(), wire::kPrefixBytes);
    const auto prefix = wire::decode_prefix(as_byte_span(frame.head).first<wire::kPrefixBytes>(), {});
    ASSERT_TRUE(prefix.ok()) << prefix.error().to_string();
    EXPECT_EQ(prefix->header_bytes, frame.head.size() - wire::kPrefixBytes);
    EXPECT_EQ(prefix->payload_bytes, frame.payload.size());
    const auto header = wire::parse_header(header_bytes(frame));
    ASSERT_TRUE(header.ok()) << header.error().to_string();
    std::string difference;
    MessageDifferencer differ;
    differ.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differ.Compare(frame.header, *header)) << difference;
    const auto again = wire::encode_head(*header, frame.payload.size(), {});
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(hex_of(as_text(again->span())), hex_of(frame.head)) << "encoded again by this version";
  }
}

// Through the checks of this version into its types, and back: nothing is refused, nothing gets lost.
Status there_and_back(const v1::Envelope& message) {
  v1::Envelope back = message;
  if (message.has_round_open()) {
    FLUVIAL_ASSIGN(const wire::Opening opening, wire::from_proto(message.round_open()));
    back = wire::to_envelope(opening);
  } else if (message.has_round_commit()) {
    FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message.round_commit()));
    back = wire::to_envelope(commit);
  } else if (message.has_report()) {
    FLUVIAL_ASSIGN(const std::vector<round::NodeReport> reports, wire::from_proto(message.report()));
    back = wire::to_envelopes(reports).front();
  } else if (message.has_decline()) {
    back = wire::to_envelope(wire::from_proto(message.decline()));
  } else if (message.has_lease_request()) {
    FLUVIAL_ASSIGN(const round::Standing standing, wire::from_proto(message.lease_request().standing()));
    *back.mutable_lease_request()->mutable_standing() = wire::to_proto(standing);
  } else if (message.has_lease_grant()) {
    FLUVIAL_ASSIGN(const round::Lineage lineage, wire::from_proto(message.lease_grant().histories()));
    back.mutable_lease_grant()->clear_histories();
    wire::to_proto(lineage, back.mutable_lease_grant()->mutable_histories());
  } else if (message.has_model_begin()) {
    FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(message.model_begin().model()));
    FLUVIAL_ASSIGN(const round::Schema schema, wire::from_proto(message.model_begin().schema()));
    *back.mutable_model_begin()->mutable_model() = wire::to_proto(ref);
    *back.mutable_model_begin()->mutable_schema() = wire::to_proto(schema);
  } else if (message.has_partial_begin()) {
    FLUVIAL_ASSIGN(const transfer::PartialHead head,
                   transfer::head_from_proto(message.partial_begin(), NodeId(2), Role::kAggregator));
    back.mutable_partial_begin()->clear_contributors();
    wire::to_proto(head.what.contributors, back.mutable_partial_begin()->mutable_contributors());
  } else if (message.has_update_begin()) {
    const v1::UpdateBegin& begin = message.update_begin();
    FLUVIAL_ASSIGN(const transfer::UpdateHead head,
                   transfer::head_from_proto(begin, NodeId(begin.key().site()), Role::kSite));
    if (head.weight != begin.weight() || head.submission != begin.key().submission() ||
        head.has_probe() != (begin.probe() == 0)) {
      return Error{Code::kInternal, "the head of an update says something else"};
    }
  }
  if (MessageDifferencer::Equals(message, back)) return {};
  return Error{Code::kInternal, message.ShortDebugString() + " became " + back.ShortDebugString()};
}

TEST_P(EachVersion, MessagesOfASessionPassTheChecksOfThisVersion) {
  for (const SessionFrame& frame : session()) {
    const auto header = wire::parse_header(header_bytes(frame));
    ASSERT_TRUE(header.ok());
    const Status same = there_and_back(*header);
    EXPECT_TRUE(same.ok()) << same.error().to_string();
  }
}

TEST_P(EachVersion, WhatIsSignedIsBelieved) {
  Believer node;
  for (const SessionFrame& frame : session()) {
    const Status status = node.hears(frame.header);
    EXPECT_TRUE(status.ok()) << status.error().to_string() << ": " << frame.header.ShortDebugString();
  }
  if (GetParam() == "0.2") {  // it signed nothing
    EXPECT_TRUE(node.counts().empty());
    return;
  }
  for (const char* what : {"lease", "denials", "opening", "contribution", "commit", "outcome", "run state"}) {
    EXPECT_TRUE(node.counts().contains(what)) << what;
  }
  EXPECT_EQ(node.admits(NodeId(9)).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(node.admits(NodeId(7)).ok());
}

// Adds a field that nobody knows to a message and to those inside it.
void add_fields_of_a_newer_version(Message& message) {
  constexpr int kNobodys = 1'999;
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(kNobodys)->assign("from a newer version");
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) add_fields_of_a_newer_version(*message.GetReflection()->MutableMessage(&message, field));
    for (int i = 0; field->is_repeated() && i < message.GetReflection()->FieldSize(message, field); ++i) {
      add_fields_of_a_newer_version(*message.GetReflection()->MutableRepeatedMessage(&message, field, i));
    }
  }
}

TEST_P(EachVersion, FieldsOfANewerVersionAreSkipped) {
  for (const SessionFrame& frame : session()) {
    v1::Envelope newer = frame.header;
    add_fields_of_a_newer_version(newer);
    const std::string bytes = newer.SerializeAsString();
    auto header = wire::parse_header(as_byte_span(bytes));
    ASSERT_TRUE(header.ok()) << header.error().to_string();
    header->DiscardUnknownFields();
    EXPECT_TRUE(MessageDifferencer::Equals(frame.header, *header));
  }
}

TEST_P(EachVersion, AnAgentAndItsWorkersSayWhatTheySaid) {
  if (GetParam() == "0.2") GTEST_SKIP() << "its local protocol is 1, and this version's is 2";
  const auto frames = local_from_text(text("local.txt"));
  ASSERT_TRUE(frames.ok()) << frames.error().to_string();
  EXPECT_GT(frames->size(), 8U);
  for (const LocalFrame& frame : *frames) {
    ASSERT_GT(frame.bytes.size(), 4U);
    const auto message = local::decode(std::string_view(frame.bytes).substr(4));
    ASSERT_TRUE(message.ok()) << message.error().to_string();
    EXPECT_TRUE(MessageDifferencer::Equals(frame.message, *message)) << frame.message.ShortDebugString();
    const auto again = local::encode(*message, local::kMessageBytesMax);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(load_le<std::uint32_t>(as_byte_span(frame.bytes).data()), again->size());
    EXPECT_EQ(hex_of(*again), hex_of(frame.bytes.substr(4))) << "encoded again by this version";
    if (message->has_attach()) EXPECT_TRUE(local::worker_from(message->attach()).ok());
    if (message->has_attached()) EXPECT_TRUE(local::devices_from(message->attached()).ok());
    if (message->has_task()) {
      const auto task = local::task_from(message->task());
      ASSERT_TRUE(task.ok()) << task.error().to_string();
      EXPECT_TRUE(MessageDifferencer::Equals(local::task_message(*task), *message));
    }
    if (message->has_task_done()) EXPECT_TRUE(local::device_from(message->task_done().device()).ok());
  }
}

TEST_P(EachVersion, EncodedChunksHoldTheirValues) {
  const auto chunks = chunks_from_text(text("codecs.txt"));
  ASSERT_TRUE(chunks.ok()) << chunks.error().to_string();
  EXPECT_GT(chunks->size(), 8U);
  for (const EncodedChunk& chunk : *chunks) {
    const auto spec = kernels::parse_codec(chunk.codec);
    ASSERT_TRUE(spec.ok()) << chunk.codec << ": " << spec.error().to_string();
    const auto codec = kernels::make_codec(*spec);
    ASSERT_TRUE(codec.ok());
    std::vector<float> decoded(chunk.value_count);
    EXPECT_TRUE((*codec)->screen_chunk(as_byte_span(chunk.bytes), chunk.value_count, 0).ok()) << chunk.codec;
    EXPECT_TRUE((*codec)->decode_chunk(as_byte_span(chunk.bytes), decoded).ok()) << chunk.codec;
    EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(decoded)))), chunk.decoded_sha256) << chunk.codec;
  }
}

// Every line that was recorded, in that order. Of an older version's folder a description may say more by now, in
// further lines and at the end of one.
void expect_told(const std::string& described, const std::string& recorded, const std::string& version) {
  if (version == FLUVIAL_MINOR_VERSION) {
    EXPECT_EQ(described, recorded);
    return;
  }
  std::istringstream told(described), expected(recorded);
  std::string line, is;
  while (std::getline(expected, line)) {
    do {
      ASSERT_TRUE(std::getline(told, is)) << "does not follow any more: " << line << "\nin\n" << described;
    } while (!is.starts_with(line));
  }
}

TEST_P(EachVersion, ACoordinatorsFolderHoldsWhatItHeld) {
  const auto described = describe_coordinator(copy_of("coordinator"));
  ASSERT_TRUE(described.ok()) << described.error().to_string();
  expect_told(*described, text("coordinator.txt"), GetParam());
}

TEST_P(EachVersion, ASitesFolderHoldsWhatItHeld) {
  const auto described = describe_site(copy_of("site"));
  ASSERT_TRUE(described.ok()) << described.error().to_string();
  expect_told(*described, text("site.txt"), GetParam());
}

// Of this version's own fixtures: they are what it does today.
class ThisVersion : public testing::Test {
 protected:
  static std::string file(const std::string& name) {
    return std::string(FLUVIAL_FIXTURES) + "/" FLUVIAL_MINOR_VERSION "/" + name;
  }
  TemporaryFolder made_;
};

TEST_F(ThisVersion, HasFixtures) {
  EXPECT_THAT(upgrade::recorded_versions(), testing::Contains(FLUVIAL_MINOR_VERSION))
      << "no fixtures of this version yet: record them with ./dev fixtures";
}

TEST(AllVersions, AreLessThanAMegabyteTogether) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FLUVIAL_FIXTURES)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 1'000'000U);
}

TEST_F(ThisVersion, SendsWhatWasRecorded) {
  EXPECT_EQ(to_text(session_of_this_version()), text_of_file(file("session.txt"))) << kRecord;
  EXPECT_EQ(to_text(local_session_of_this_version()), text_of_file(file("local.txt"))) << kRecord;
  EXPECT_EQ(to_text(chunks_of_this_version()), text_of_file(file("codecs.txt"))) << kRecord;
}

TEST_F(ThisVersion, WritesWhatWasRecorded) {
  ASSERT_TRUE(write_coordinator(made_.path() + "/coordinator").ok());
  ASSERT_TRUE(write_site(made_.path() + "/site").ok());
  for (const std::string name : {"coordinator/journal.sqlite", "site/site.db"}) {
    const std::string made = made_.path() + "/" + name;
    EXPECT_EQ(format_of_database(made), format_of_database(file(name))) << name << ": " << kRecord;
    EXPECT_EQ(dump_database(made, true), dump_database(file(name), true)) << kRecord;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(made_.path())) {
    const std::string name = entry.path().lexically_relative(made_.path()).generic_string();
    if (!entry.is_regular_file() || name.ends_with(".sqlite") || name.ends_with(".db")) continue;
    EXPECT_EQ(hex_of(text_of_file(entry.path().string())), hex_of(text_of_file(file(name)))) << name << ": " << kRecord;
  }
}

TEST_F(ThisVersion, RecordedAFederationOfTheSameFormats) {
  const auto schema = [](const std::string& path) { return dump_database(path, false); };
  const std::string journal = schema(file("federation/coordinator/journal.sqlite"));
  EXPECT_THAT(journal, HasSubstr("contributions"));
  EXPECT_EQ(journal, schema(file("coordinator/journal.sqlite"))) << kRecord;
  for (const char* site : {"site-1", "site-2"}) {
    EXPECT_EQ(schema(file(std::string("federation/") + site + "/state/site.db")), schema(file("site/site.db")))
        << kRecord;
  }
}

// The statement that a place calls for.
const google::protobuf::Descriptor* statement_in(const google::protobuf::FieldDescriptor& place) {
  static const std::map<std::string, const google::protobuf::Descriptor*> kStatements = {
      {"fluvial.v1.Hello.lease", v1::LeaseStatement::descriptor()},
      {"fluvial.v1.LeaseGrant.leases", v1::LeaseStatement::descriptor()},
      {"fluvial.v1.MemberChange.leases", v1::LeaseStatement::descriptor()},
      {"fluvial.v1.Denials.statement", v1::DenialStatement::descriptor()},
      {"fluvial.v1.RoundOpen.order", v1::OpeningStatement::descriptor()},
      {"fluvial.v1.RoundCommit.order", v1::CommitStatement::descriptor()},
      {"fluvial.v1.RoundCommit.outcomes", v1::OutcomeStatement::descriptor()},
      {"fluvial.v1.OutcomeReply.order", v1::OutcomeStatement::descriptor()},
      {"fluvial.v1.RunState.order", v1::RunStateStatement::descriptor()}};
  const auto found = kStatements.find(std::string(place.full_name()));
  return found == kStatements.end() ? nullptr : found->second;
}

void note_fields(const Message& message, std::set<std::string>& seen);

void note_inner(const google::protobuf::FieldDescriptor& place, const Message& inner, std::set<std::string>& seen) {
  note_fields(inner, seen);
  if (place.message_type() != v1::Signed::descriptor()) return;
  const google::protobuf::Descriptor* const kind = statement_in(place);
  ASSERT_NE(kind, nullptr) << "which statement is in " << place.full_name() << "?";
  auto* const factory = google::protobuf::MessageFactory::generated_factory();
  const std::unique_ptr<Message> statement(factory->GetPrototype(kind)->New());
  ASSERT_TRUE(statement->ParseFromString(static_cast<const v1::Signed&>(inner).body())) << place.full_name();
  note_fields(*statement, seen);
}

// A field that no frame has could change unseen.
void note_fields(const Message& message, std::set<std::string>& seen) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    seen.insert(field->full_name());
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) note_inner(*field, message.GetReflection()->GetMessage(message, field), seen);
    for (int i = 0; field->is_repeated() && i < message.GetReflection()->FieldSize(message, field); ++i) {
      note_inner(*field, message.GetReflection()->GetRepeatedMessage(message, field, i), seen);
    }
  }
}

// The statement that a site's signature is of does not travel: it follows from the contribution.
void note_contributions(const v1::PartialBegin& partial, std::set<std::string>& seen) {
  for (const v1::Contributor& contributor : partial.contributors()) {
    const auto contribution = wire::from_proto(contributor);
    ASSERT_TRUE(contribution.ok());
    v1::ContributionStatement statement;
    ASSERT_TRUE(statement.ParseFromString(wire::contribution_body(RunId(partial.run()), RoundId(partial.round()),
                                                                  sha256(as_byte_span("base")), *contribution)));
    note_fields(statement, seen);
  }
}

std::vector<std::string> unseen(const google::protobuf::FileDescriptor* file, const std::set<std::string>& seen) {
  std::vector<std::string> missing;
  for (int i = 0; i < file->message_type_count(); ++i) {
    for (int field = 0; field < file->message_type(i)->field_count(); ++field) {
      const std::string name = file->message_type(i)->field(field)->full_name();
      if (!seen.contains(name)) missing.push_back(name);
    }
  }
  return missing;
}

TEST_F(ThisVersion, RecordsEveryFieldOfEveryMessage) {
  std::set<std::string> seen;
  for (const SessionFrame& frame : session_of_this_version()) {
    note_fields(frame.header, seen);
    note_contributions(frame.header.partial_begin(), seen);
  }
  // These are between a coordinator and itself.
  EXPECT_THAT(unseen(v1::Envelope::descriptor()->file(), seen),
              testing::UnorderedElementsAre("fluvial.v1.Plan.down", "fluvial.v1.Plan.late",
                                            "fluvial.v1.Plan.staleness_max", "fluvial.v1.Plan.staleness_power",
                                            "fluvial.v1.Plan.mode", "fluvial.v1.Plan.async_goal",
                                            "fluvial.v1.Plan.async_lead_max", "fluvial.v1.Plan.async_drift_max",
                                            "fluvial.v1.Plan.async_fairness", "fluvial.v1.Plan.optimizer_averaged"))
      << "set the others in tests/upgrade/session.cc";
  EXPECT_THAT(unseen(v1::EnrolRequest::descriptor()->file(), seen), testing::IsEmpty())
      << "set them in tests/upgrade/session.cc";
  seen.clear();
  for (const LocalFrame& frame : local_session_of_this_version()) note_fields(frame.message, seen);
  EXPECT_THAT(unseen(v1::LocalMessage::descriptor()->file(), seen), testing::IsEmpty())
      << "set them in tests/upgrade/local_session.cc";
}

// Whatever opens a folder of a newer version says so and leaves it as it is.
class Newer : public ThisVersion {
 protected:
  std::string newer_copy(const std::string& folder, const std::string& database) {
    const std::string copy = made_.path() + "/" + folder;
    std::filesystem::copy(file(folder), copy, std::filesystem::copy_options::recursive);
    std::fstream bytes(copy + "/" + database, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(63);  // the last of user_version's four bytes
    bytes.put(99);
    return copy;
  }
};

TEST_F(Newer, FoldersAreRefusedInOneLine) {
  const auto coordinator = describe_coordinator(newer_copy("coordinator", "journal.sqlite"));
  ASSERT_FALSE(coordinator.ok());
  EXPECT_EQ(coordinator.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(coordinator.error().message,
              HasSubstr("journal.sqlite was written by a newer version of Fluvial (format 99"));
  EXPECT_THAT(coordinator.error().message,
              HasSubstr("start that version, or restore a backup from before the upgrade"));
  const auto site = describe_site(newer_copy("site", "site.db"));
  ASSERT_FALSE(site.ok());
  EXPECT_THAT(site.error().message, HasSubstr("site.db was written by a newer version of Fluvial (format 99"));
  EXPECT_EQ(format_of_database(made_.path() + "/site/site.db"), 99);
}

}  // namespace
}  // namespace fluvial::upgrade
