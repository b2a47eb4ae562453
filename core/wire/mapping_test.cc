#include "core/wire/mapping.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "core/base/rng.h"
#include "core/round/plan_test_support.h"
#include "core/wire/frame.h"

namespace fluvial::wire {
namespace {

template <typename T>
void expect_invalid(const Result<T>& result, const std::string& what = "") {
  ASSERT_FALSE(result.ok()) << what;
  EXPECT_EQ(result.error().code, Code::kInvalidArgument) << what;
  EXPECT_FALSE(result.error().message.empty()) << what;
}

TEST(Codes, EveryNumberIsFixed) {
  EXPECT_EQ(code_to_proto(Code::kInvalidArgument), 1u);
  EXPECT_EQ(code_to_proto(Code::kStale), 8u);
  EXPECT_EQ(code_to_proto(Code::kInternal), 13u);
  EXPECT_EQ(code_to_proto(Code::kConflict), 14u);
  for (std::uint32_t code = 1; code <= 14; ++code) EXPECT_EQ(code_to_proto(*code_from_proto(code)), code);
  expect_invalid(code_from_proto(0));
  expect_invalid(code_from_proto(15));
  EXPECT_EQ(status_code_to_proto(Status()), 0u);
}

TEST(Codes, APeersVerdict) {
  EXPECT_TRUE(status_from_proto(0, "whatever").ok());
  EXPECT_EQ(status_from_proto(8, "old epoch").error(), (Error{Code::kStale, "old epoch"}));
  EXPECT_EQ(status_from_proto(99, "new").error(), (Error{Code::kInternal, "unknown code 99: new"}));
  EXPECT_EQ(error_from_proto(0, "").code, Code::kInternal);
  EXPECT_EQ(status_from_proto(8, "").error(), (Error{Code::kStale, "it says no reason"}));  // no empty line in a log
}

TEST(Printable, IsOneBoundedLine) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a b [31m ");
  EXPECT_EQ(printable(std::string(5000, 'x')).size(), kMessageBytesMax);
  EXPECT_EQ(printable("für \xe2\x82\xac \xf0\x9f\x8c\x8a"), "für \xe2\x82\xac \xf0\x9f\x8c\x8a");
  EXPECT_EQ(printable("\xff\xc3 \xed\xa0\x80 \xc0\xaf \xf5\x80"), "?? ??? ?? ??");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            " 31m");  // a terminal's control sequence in one character
  const std::string cut = printable(std::string(kMessageBytesMax - 1, 'x') + "ü");  // not through a character
  EXPECT_EQ(cut, std::string(kMessageBytesMax - 1, 'x'));
}

TEST(Roles, BothWays) {
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite}) {
    EXPECT_EQ(*role_from_proto(role_to_proto(role)), role);
  }
  expect_invalid(role_from_proto(v1::NODE_ROLE_UNSPECIFIED));
  expect_invalid(role_from_proto(static_cast<v1::NodeRole>(77)));
}

TEST(Digests, ThirtyTwoBytes) {
  Digest digest{};
  digest[31] = std::byte{9};
  EXPECT_EQ(*digest_from_proto(digest_to_proto(digest)), digest);
  expect_invalid(digest_from_proto(""));
  expect_invalid(digest_from_proto(std::string(31, 'x')));
  expect_invalid(digest_from_proto(std::string(33, 'x')));
}

// ---- schema ------------------------------------------------------------------------------------------------------

TEST(Schemas, BothWays) {
  const auto schema = round::Schema::make(
      {{"w", round::DType::kF32, {3, 4}}, {"b", round::DType::kF32, {}}, {"steps", round::DType::kI64, {1}}});
  ASSERT_TRUE(schema.ok());
  const auto back = from_proto(to_proto(*schema));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(*back, *schema);
}

TEST(Schemas, RefuseWhatDoesNotHold) {
  const auto tensor = [](const std::string& name, const std::string& dtype, std::vector<std::uint64_t> shape) {
    v1::Schema schema;
    auto& added = *schema.add_tensors();
    added.set_name(name);
    added.set_dtype(dtype);
    for (const std::uint64_t dimension : shape) added.add_shape(dimension);
    return schema;
  };
  EXPECT_TRUE(from_proto(tensor("w", "F32", {1})).ok());
  expect_invalid(from_proto(v1::Schema()), "no tensors");
  expect_invalid(from_proto(tensor("", "F32", {1})), "no name");
  expect_invalid(from_proto(tensor("w", "F64", {1})), "dtype");
  expect_invalid(from_proto(tensor("w", "F32", std::vector<std::uint64_t>(9, 1))), "rank");
  expect_invalid(from_proto(tensor("w", "F32", {1ull << 63, 4})), "overflow");
  expect_invalid(from_proto(tensor("w", "I64", {(1u << 19) + 1})), "integers");
}

// As many tensors as there may be, with names that make them long or short: each part is a header that parses.
TEST(Schemas, ComeInPartsThatFitAFrame) {
  for (const std::size_t name_bytes : {3, 500}) {
    std::vector<round::Tensor> tensors;
    for (std::size_t i = 0; i < (name_bytes == 3 ? 20'000 : round::kTensorsMax); ++i) {
      std::string name;
      for (std::size_t left = i; name.size() < 3; left /= 64) name += static_cast<char>('0' + left % 64);
      tensors.push_back({name + std::string(name_bytes - 3, 'x'), round::DType::kF32, {}});
    }
    const round::Schema schema = round::Schema::make(tensors).value();
    tensors.clear();
    int parts = 0;
    for (std::size_t next = 0; next < schema.tensors().size(); ++parts) {
      v1::Envelope message;
      const std::size_t first =
          std::exchange(next, put_tensors(schema, next, 256 << 10, message.mutable_model_begin()->mutable_schema()));
      ASSERT_GT(next, first);
      const Buffer head = encode_head(message, 0, {}).value();
      ASSERT_LT(head.size(), 258u << 10);
      const Result<v1::Envelope> read = parse_header(head.span().subspan(kPrefixBytes));
      ASSERT_TRUE(read.ok()) << read.error().message;
      ASSERT_TRUE(add_tensors(read->model_begin().schema(), &tensors).ok());
    }
    EXPECT_GT(parts, 1);
    EXPECT_EQ(tensors, schema.tensors());
  }
}

TEST(Schemas, PartsAddUpToNoMoreThanThereMayBe) {
  v1::Schema part;
  for (int i = 0; i < 1000; ++i) part.add_tensors()->set_dtype("F32");
  std::vector<round::Tensor> tensors;
  for (int i = 0; i < 65; ++i) ASSERT_TRUE(add_tensors(part, &tensors).ok());
  EXPECT_EQ(add_tensors(part, &tensors).error().message, "more than 65536 tensors");
  EXPECT_EQ(tensors.size(), 65'000u);
  v1::Schema long_name;
  long_name.add_tensors()->set_name(std::string(513, 'x'));
  long_name.mutable_tensors(0)->set_dtype("F32");
  EXPECT_EQ(add_tensors(long_name, &tensors).error().code, Code::kInvalidArgument) << "before it is kept";
  EXPECT_EQ(tensors.size(), 65'000u);
}

// ---- who takes part ----------------------------------------------------------------------------------------------

round::Contribution contribution(std::uint32_t site) {
  round::Contribution out{SiteId(site), Epoch(5), 100 + site, {}, -77, {{"loss", 0.25}, {"accuracy", 0.5}}};
  out.times = {std::chrono::milliseconds(1'500), std::chrono::microseconds(20 + site), std::chrono::microseconds(3)};
  out.digest[0] = static_cast<std::byte>(site);
  return out;
}

TEST(Lists, BothWays) {
  const std::vector<round::Participant> participants = {{SiteId(3), Epoch(1), 1}, {SiteId(2), Epoch(9), 500, 48}};
  ParticipantList participant_list;
  to_proto(participants, &participant_list);
  EXPECT_EQ(*from_proto(participant_list), participants);

  round::ContributorSet set;
  for (std::uint32_t site = 1; site <= 20; ++site) ASSERT_TRUE(set.add(contribution(site)).ok());
  ContributorList contributors;
  to_proto(set, &contributors);
  EXPECT_EQ(*from_proto(contributors), set);

  const std::vector<round::Refusal> refusals = {{SiteId(4), {Code::kDataLoss, "NaN in tensor 'w'"}},
                                                {SiteId(5), {Code::kDataLoss, "old"}, RoundId(8)}};
  RefusalList refusal_list;
  to_proto(refusals, &refusal_list);
  EXPECT_EQ(*from_proto(refusal_list), refusals);

  const std::vector<SiteId> sites = {SiteId(9), SiteId(1)};
  SiteList site_list;
  to_proto(sites, &site_list);
  EXPECT_EQ(*from_proto(site_list), sites);
}

TEST(Lists, NameASiteOnce) {
  ParticipantList participants;
  to_proto(std::vector<round::Participant>{{SiteId(3), Epoch(1), 1}, {SiteId(3), Epoch(2), 1}}, &participants);
  expect_invalid(from_proto(participants));
  ContributorList contributors;
  for (int i = 0; i < 2; ++i) *contributors.Add() = to_proto(contribution(3));
  expect_invalid(from_proto(contributors));
  SiteList sites;
  to_proto({SiteId(1), SiteId(1)}, &sites);
  expect_invalid(from_proto(sites));
}

TEST(Contributors, RefuseWhatDoesNotHold) {
  const std::vector<std::function<void(v1::Contributor&)>> damages = {
      [](v1::Contributor& entry) { entry.set_site(0); },
      [](v1::Contributor& entry) { entry.set_weight(0); },
      [](v1::Contributor& entry) { entry.set_weight(1u << 29); },
      [](v1::Contributor& entry) { entry.set_sha256("short"); },
      [](v1::Contributor& entry) { entry.set_share(513); },
      [](v1::Contributor& entry) { (*entry.mutable_metrics())[""] = 1; },
      [](v1::Contributor& entry) { (*entry.mutable_metrics())["a\nb"] = 1; },
      [](v1::Contributor& entry) { (*entry.mutable_metrics())["a b"] = 1; },
      [](v1::Contributor& entry) { (*entry.mutable_metrics())["lo\u202ess"] = 1; },
      [](v1::Contributor& entry) { (*entry.mutable_metrics())[std::string(65, 'x')] = 1; },
      [](v1::Contributor& entry) {
        for (int i = 0; i < 65; ++i) (*entry.mutable_metrics())[std::to_string(i)] = 1;
      },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    v1::Contributor entry = to_proto(contribution(3));
    damages[i](entry);
    expect_invalid(from_proto(entry), std::to_string(i));
  }
}

TEST(Participants, RefuseWhatDoesNotHold) {
  v1::Participant good = to_proto(round::Participant{SiteId(3), Epoch(1), 1});
  v1::Participant bad = good;
  bad.set_site(0);
  expect_invalid(from_proto(bad));
  bad = good;
  bad.set_weight_max(0);
  expect_invalid(from_proto(bad));
  bad.set_weight_max(1u << 29);
  expect_invalid(from_proto(bad));
}

TEST(Refusals, AreBoundedAndHaveACode) {
  v1::Refusal refusal;
  refusal.set_site(1);
  expect_invalid(from_proto(refusal));
  refusal.set_code(9);
  refusal.set_message(std::string(9000, '\n'));
  const auto taken = from_proto(refusal);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken->error.message, std::string(kMessageBytesMax, ' '));
}

TEST(Refusals, CarryBothContentsOfAContradiction) {
  round::Refusal refusal{SiteId(3), {Code::kConflict, "two contents"}, RoundId(2), {contribution(3), contribution(3)}};
  refusal.proof[1].digest[0] ^= std::byte{1};
  const v1::Refusal sent = to_proto(refusal);
  for (round::Contribution& content : refusal.proof) content.metrics.clear();  // which no site signs
  EXPECT_EQ(*from_proto(sent), refusal);
}

// A site that wants to be left alone could else have its parent's whole partial refused.
TEST(Refusals, WhatShowsNothingIsLeftOutOfThem) {
  const round::Refusal refusal{SiteId(3), {Code::kConflict, "two contents"}};
  v1::Refusal sent = to_proto(refusal);
  *sent.add_proof() = to_proto(contribution(4));
  sent.add_proof();
  EXPECT_EQ(*from_proto(sent), refusal);
  for (int i = 0; i < 5; ++i) *sent.add_proof() = to_proto(contribution(3));
  EXPECT_EQ(from_proto(sent)->proof.size(), 2u);
}

// Whatever a parsed message holds, mapping it ends in a value or an error.
TEST(Mapping, DamagedMessagesNeverCrash) {
  round::ContributorSet set;
  for (std::uint32_t site = 1; site <= 5; ++site) ASSERT_TRUE(set.add(contribution(site)).ok());
  v1::Envelope commit;
  to_proto(set, commit.mutable_round_commit()->mutable_contributors());
  v1::Envelope open;
  *open.mutable_round_open()->mutable_plan() = to_proto(round::unusual_plan());
  to_proto({{SiteId(3), Epoch(1), 1}}, open.mutable_round_open()->mutable_participants());
  const std::string goods[] = {commit.SerializeAsString(), open.SerializeAsString()};
  Rng rng(11);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = goods[rng.below(2)];
    for (std::uint64_t damage = 1 + rng.below(4); damage > 0; --damage) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    }
    const auto header = parse_header(as_byte_span(bytes));
    if (!header.ok()) continue;
    (void)from_proto(header->round_commit().contributors());
    (void)from_proto(header->round_open().plan());
    (void)from_proto(header->round_open().participants());
  }
}

}  // namespace
}  // namespace fluvial::wire
