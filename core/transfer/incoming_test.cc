#include "core/transfer/incoming.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "core/round/integers.h"
#include "core/transfer/test_support.h"
#include "kernels/fixed.h"

namespace fluvial::transfer {
namespace {

using testing::HasSubstr;

class IncomingTest : public TransferTest {};

TEST_F(IncomingTest, AnUpdateIsHandedOverWholeAndItsBytesCountUntilItGoes) {
  const std::vector<float> values = test_values(1);
  {
    const StagedArrival staged = arrival(test_head(7, 9, 3), values);
    const round::Contribution* one = staged.what.contributors.find(SiteId(7));
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(one->incarnation, Incarnation(3));
    EXPECT_EQ(one->submission, 9u);
    EXPECT_EQ(one->weight, 7u);
    EXPECT_EQ(one->digest, test_sha256(values));
    EXPECT_EQ(budget_.bytes_used(), kTestValues * sizeof(float));
  }
  EXPECT_EQ(budget_.bytes_used(), 0u);
}

// What the head announces is what the digest must be of, and what names the contribution.
TEST_F(IncomingTest, TheDigestIsOfTheKindThatTheHeadSays) {
  const std::vector<float> values = test_values(1);
  for (const DigestKind kind : {DigestKind::kStream, DigestKind::kTree}) {
    const Digest stream = test_sha256(values);
    const Digest tree = test_tree(values);
    for (const Digest& sent : {stream, tree}) {
      UpdateHead head = test_head(7);
      head.digest_kind = kind;
      Incoming incoming = begin(head);
      feed(incoming, values, 0, 3);
      const Result<StagedArrival> staged = incoming.end(wire::digest_to_proto(sent), test_trailer().span());
      const bool is_right = sent == (kind == DigestKind::kTree ? tree : stream);
      ASSERT_EQ(staged.ok(), is_right);
      if (is_right) EXPECT_EQ(staged->what.contributors.find(SiteId(7))->digest, sent);
      if (!is_right) EXPECT_EQ(staged.error().code, Code::kDataLoss);
    }
  }
}

// Of a tree each chunk is hashed by itself: none of them may go unseen, and the trailer neither.
TEST_F(IncomingTest, ATreeSeesAChangeInAnyChunkAndInTheTrailer) {
  const std::vector<float> values = test_values(1);
  UpdateHead head = test_head(7);
  head.digest_kind = DigestKind::kTree;
  for (const std::size_t at : {0UL, 255UL, 256UL, 511UL, 512UL, 599UL}) {
    std::vector<float> changed = values;
    changed[at] += 1;
    Incoming incoming = begin(head);
    feed(incoming, changed, 0, 3);
    const auto refused = incoming.end(wire::digest_to_proto(test_tree(values)), test_trailer().span());
    ASSERT_FALSE(refused.ok()) << at;
    EXPECT_THAT(refused.error().message, HasSubstr("digest"));
  }
}

TEST_F(IncomingTest, AHeadThatDoesNotMeetTheTermsIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(UpdateHead&)>>> cases{
      {"codec", [](UpdateHead& head) { head.codec_name = "int8"; }},
      {"number of values", [](UpdateHead& head) { head.value_count = std::numeric_limits<std::uint64_t>::max(); }},
      {"number of values", [](UpdateHead& head) { head.chunk_count = 4; }},
      {"another model", [](UpdateHead& head) { head.base.fill(std::byte{1}); }},
      {"probe", [](UpdateHead& head) { head.probe = 2; }},
  };
  for (const auto& [reason, spoil] : cases) {
    UpdateHead head = test_head(7);
    spoil(head);
    const Result<Incoming> begun = Incoming::begin(head, test_terms(), staging_);
    ASSERT_FALSE(begun.ok()) << reason;
    EXPECT_EQ(begun.error().code, Code::kInvalidArgument);
    EXPECT_THAT(begun.error().message, HasSubstr(reason));
  }
}

// The parent's opening did not check the scale: a sum with this weight would leave int64. The site did nothing wrong.
TEST_F(IncomingTest, AWeightWithoutRoomAtTheScaleIsRefusedAndNotDropped) {
  Terms terms = test_terms();
  terms.value_abs_max = 0.1;
  terms.scale_bits = 40;
  UpdateHead head = test_head(7);
  head.weight = 5'000'000;
  const Result<Incoming> begun = Incoming::begin(head, terms, staging_);
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(round::drops_update(begun.error().code));
  head.weight = 4'000'000;
  EXPECT_TRUE(Incoming::begin(head, terms, staging_).ok());
}

TEST_F(IncomingTest, AValueOfAPassIsNoTensors) {
  Terms terms = test_terms();
  terms.schema = std::make_shared<const round::Schema>(
      *round::Schema::make({{"w", round::DType::kF32, {kTestValues, 2}}, {"b", round::DType::kF32, {7}}}));
  terms.from = {1, {std::byte{1}}};
  UpdateHead head = test_head(7);
  head.from = terms.from;
  Result<Incoming> incoming = Incoming::begin(head, terms, staging_);
  ASSERT_TRUE(incoming.ok());
  std::vector<float> values = test_values(0);
  values[2] = 1000;
  const Status taken = incoming->chunk(0, test_chunk(values, 0));
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message, HasSubstr("value 2 of pass 2 is 1000"));
}

TEST_F(IncomingTest, WhatIsBadOnTheWayRefusesTheWhole) {
  std::vector<float> values = test_values(0);
  {
    Incoming out_of_order = begin(test_head(7));
    EXPECT_EQ(out_of_order.chunk(1, test_chunk(values, 1)).error().code, Code::kInvalidArgument);
  }
  {
    Incoming early = begin(test_head(7));
    feed(early, values, 0, 2);
    EXPECT_EQ(early.end(test_digest(values), test_trailer().span()).error().code, Code::kUnavailable);
  }
  {
    Incoming other_bytes = begin(test_head(7));
    feed(other_bytes, values, 0, 3);
    EXPECT_EQ(other_bytes.end(test_digest(test_values(1)), test_trailer().span()).error().code, Code::kDataLoss);
  }
  values[300] = 101;
  Incoming large = begin(test_head(7));
  feed(large, values, 0, 1);
  const Status beyond = large.chunk(1, test_chunk(values, 1));
  EXPECT_THAT(beyond.error().message, HasSubstr("value 300"));
}

TEST_F(IncomingTest, APartialHoldsNoMoreThanItsContributorsCanGive) {
  for (const std::uint32_t share : {round::kWholeFactor, round::kWholeFactor / 16}) {
    PartialHead head;
    head.child = NodeId(2);
    head.scale_bits = kTestScale;
    head.chunk_count = 3;
    round::Contribution one{SiteId(7), Epoch(1), 7, {}, std::int64_t{7} * share << (kTestScale - 9), {}};
    one.share = share;
    ASSERT_TRUE(head.what.contributors.add(one).ok());
    const std::int64_t most = std::int64_t{7} * 100 * share << (kTestScale - 9);  // weight times value_abs_max
    for (const std::int64_t sum :
         {most, -most, most * 2, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
      Result<Incoming> incoming = Incoming::begin(head, test_terms(), staging_);
      ASSERT_TRUE(incoming.ok()) << incoming.error().message;
      std::vector<std::int64_t> sums(kTestChunkValues, 1);
      sums[5] = sum;
      Buffer packed(kernels::packed_bytes_max(sums.size()));
      const std::size_t size = kernels::pack_chunk(sums, packed.span());
      const Status taken = incoming->chunk(0, Buffer::copy_of(ByteSpan(packed.span()).first(size)));
      EXPECT_EQ(taken.ok(), sum == most || sum == -most) << sum << " of share " << share;
      if (!taken.ok()) EXPECT_THAT(taken.error().message, HasSubstr("value 5"));
    }
  }
}

// Otherwise a chunk that was checked for many contributors would be added as the sum of few, and a few such partials
// would leave int64.
TEST_F(IncomingTest, APartialGoesOnWithTheContributorsItBeganWithAlone) {
  PartialHead head;
  head.child = NodeId(2);
  head.scale_bits = kTestScale;
  head.chunk_count = 3;
  const auto entry = [](std::uint32_t site) {
    return round::Contribution{SiteId(site), Epoch(1), 7, {}, std::int64_t{7} << kTestScale, {}};
  };
  ASSERT_TRUE(head.what.contributors.add(entry(7)).ok() && head.what.contributors.add(entry(8)).ok());
  const auto resume = [&](const std::function<void(round::Contribution&)>& change, bool second = true) {
    Result<Incoming> incoming = Incoming::begin(head, test_terms(), staging_);
    EXPECT_TRUE(incoming.ok());
    const std::vector<std::int64_t> sums(kTestChunkValues, std::int64_t{14} * 100 << kTestScale);
    Buffer packed(kernels::packed_bytes_max(sums.size()));
    packed.shrink(kernels::pack_chunk(sums, packed.span()));
    EXPECT_TRUE(incoming->chunk(0, std::move(packed)).ok());
    PartialHead again = head;
    again.first_chunk = 1;
    again.what.contributors.clear();
    round::Contribution changed = entry(7);
    change(changed);
    EXPECT_TRUE(again.what.contributors.add(changed).ok());
    if (second) EXPECT_TRUE(again.what.contributors.add(entry(8)).ok());
    return incoming->resume(again, test_terms());
  };
  const auto weigh = [](round::Contribution& one) {
    one.weight = 1;
    one.probe = std::int64_t{1} << kTestScale;
  };
  EXPECT_TRUE(resume([](round::Contribution& one) { one.times.merge = std::chrono::seconds(1); }).ok());
  EXPECT_EQ(resume([](round::Contribution&) {}, false).error().code, Code::kInvalidArgument);
  EXPECT_EQ(resume(weigh).error().code, Code::kInvalidArgument);
  const auto half = [](round::Contribution& one) {
    one.share = round::kWholeFactor / 2;
    one.probe /= 2;
  };
  EXPECT_EQ(resume(half).error().code, Code::kInvalidArgument) << "half of it was checked as all of it";
  EXPECT_EQ(resume([](round::Contribution& one) { one.submission = 2; }).error().code, Code::kInvalidArgument);
  EXPECT_EQ(resume([](round::Contribution& one) { one.digest.fill(std::byte{1}); }).error().code,
            Code::kInvalidArgument);
}

template <typename Head>
constexpr bool is_update = std::is_same_v<Head, UpdateHead>;

class IncomingIntegers : public IncomingTest {
 protected:
  IncomingIntegers() {
    terms_.integer_count = 2;
    terms_.schema =
        std::make_shared<const round::Schema>(*round::Schema::make({{"w", round::DType::kF32, {kTestValues}},
                                                                    {"count", round::DType::kU8, {1}},
                                                                    {"steps", round::DType::kI64, {1}}}));
    terms_.base_integers = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{3, 100});
  }
  template <typename Head>
  Status bring(Head head, const std::vector<Buffer>& chunks, const std::vector<std::int64_t>& integers) {
    head.digest_kind = kind_;
    Result<Incoming> incoming = Incoming::begin(std::move(head), terms_, staging_);
    if (!incoming.ok()) return incoming.error();
    SubmissionDigest digest(kind_, chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      digest.side_by_side(i, chunks[i].span());
      digest.in_order(chunks[i].span());
      FLUVIAL_TRY(incoming->chunk(i, Buffer::copy_of(chunks[i].span())));
    }
    Buffer trailer(integers.size() * sizeof(std::int64_t) + (is_update<Head> ? round::kProbeBytes : 0));
    std::ranges::copy(std::as_bytes(std::span(integers)), trailer.data());
    if (is_update<Head>)
      std::ranges::copy(round::probe_bytes(), trailer.data() + integers.size() * sizeof(std::int64_t));
    const std::string sent = wire::digest_to_proto(digest.finish(trailer.span()));
    const Result<StagedArrival> staged = incoming->end(sent, trailer.span());
    if (!staged.ok()) return staged.error();
    EXPECT_EQ(staged->integers, integers);
    return {};
  }
  Status update(const std::vector<std::int64_t>& integers) {
    UpdateHead head = test_head(7);
    head.integer_count = 2;
    std::vector<Buffer> chunks;
    for (std::size_t i = 0; i < 3; ++i) chunks.push_back(test_chunk(test_values(1), i));
    return bring(head, chunks, integers);
  }
  Status partial(const std::vector<std::int64_t>& integers, bool somebody = true) {
    PartialHead head;
    head.child = NodeId(2);
    head.scale_bits = kTestScale;
    std::vector<Buffer> chunks;
    if (somebody) {
      head.chunk_count = 3;
      EXPECT_TRUE(head.what.contributors.add({SiteId(7), Epoch(1), 7, {}, std::int64_t{7} << kTestScale, {}}).ok());
      for (const std::size_t count : {256, 256, 88}) {
        Buffer packed(kernels::packed_bytes_max(count));
        packed.shrink(kernels::pack_chunk(std::vector<std::int64_t>(count, 1), packed.span()));
        chunks.push_back(std::move(packed));
      }
    }
    return bring(head, chunks, integers);
  }
  Terms terms_ = test_terms();
  DigestKind kind_ = DigestKind::kStream;
};

TEST_F(IncomingIntegers, BeyondWhatARoundCanBringRefuseTheUpdateByNameOfSiteAndTensor) {
  EXPECT_TRUE(update({4, 100 + round::kIntegerStepMax}).ok());
  EXPECT_TRUE(update({0, 0}).ok()) << "less than the base's does no harm: the greatest stays";
  for (const auto& [integers, tensor] : std::vector<std::pair<std::vector<std::int64_t>, std::string>>{
           {{1000, 101}, "tensor 'count'"},
           {{4, 101 + round::kIntegerStepMax}, "tensor 'steps'"},
           {{4, std::numeric_limits<std::int64_t>::max()}, "tensor 'steps'"}}) {
    const Status refused = update(integers);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(round::drops_update(refused.error().code)) << "it would come back for ever";
    EXPECT_THAT(refused.error().message, HasSubstr("site 7"));
    EXPECT_THAT(refused.error().message, HasSubstr(tensor));
  }
}

TEST_F(IncomingIntegers, OfAPartialAreHeldToTheSameByNameOfItsSender) {
  EXPECT_TRUE(partial({4, 150}).ok());
  kind_ = DigestKind::kTree;
  EXPECT_TRUE(partial({4, 150}).ok());
  EXPECT_TRUE(partial({}, false).ok()) << "names alone are a trailer without chunks";
  const Status refused = partial({4, 101 + round::kIntegerStepMax});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("partial of node 2: tensor 'steps'"));
}

TEST_F(IncomingIntegers, WaitForTheBaseThatTheyAreHeldAgainst) {
  terms_.base_integers = nullptr;
  EXPECT_EQ(update({4, 150}).error().code, Code::kResourceExhausted);
  EXPECT_EQ(partial({4, 150}).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(partial({}, false).ok()) << "names alone bring no integers";
}

TEST_F(IncomingTest, AProbeThatIsNotOneRefusesTheUpdate) {
  const std::vector<float> values = test_values(1);
  for (const float probe : {0.0F, 2.0F, -1.0F, 1.0000001F, std::numeric_limits<float>::quiet_NaN()}) {
    Incoming incoming = begin(test_head(7));
    feed(incoming, values, 0, 3);
    Sha256 hash;
    hash.update(std::as_bytes(std::span(values)));
    hash.update(std::as_bytes(std::span(&probe, 1)));
    const auto refused = incoming.end(wire::digest_to_proto(hash.finish()), std::as_bytes(std::span(&probe, 1)));
    ASSERT_FALSE(refused.ok()) << probe;
    EXPECT_THAT(refused.error().message, HasSubstr("site 7: the probe is not 1"));
  }
  Incoming without = begin(test_head(7));
  feed(without, values, 0, 3);
  EXPECT_FALSE(without.end(wire::digest_to_proto(sha256(std::as_bytes(std::span(values)))), {}).ok());
}

// A submission that was encoded under protocol 1: its work is not lost.
TEST_F(IncomingTest, AnUpdateOfAnEarlierVersionIsTakenWithAProbeOfTheParents) {
  const std::vector<float> values = test_values(1);
  UpdateHead head = test_head(7);
  head.probe = 1;
  Incoming incoming = begin(head);
  feed(incoming, values, 0, 3);
  const auto staged = incoming.end(wire::digest_to_proto(sha256(std::as_bytes(std::span(values)))), {});
  ASSERT_TRUE(staged.ok()) << staged.error().message;
  EXPECT_EQ(staged->update()->probe, round::probe_bytes());
}

TEST_F(IncomingTest, ATreeGoesOnFromWhereItWasCutOff) {
  const std::vector<float> values = test_values(1);
  UpdateHead head = test_head(7, 9, 3);
  head.digest_kind = DigestKind::kTree;
  Incoming incoming = begin(head);
  feed(incoming, values, 0, 2);
  head.first_chunk = 2;
  ASSERT_TRUE(incoming.continues(head));
  ASSERT_TRUE(incoming.resume(head, test_terms()).ok());
  feed(incoming, values, 2, 3);
  EXPECT_TRUE(incoming.end(wire::digest_to_proto(test_tree(values)), test_trailer().span()).ok());
}

TEST_F(IncomingTest, GoesOnFromWhereItWasCutOff) {
  const std::vector<float> values = test_values(1);
  Incoming incoming = begin(test_head(7, 9, 3));
  feed(incoming, values, 0, 2);
  EXPECT_EQ(incoming.received(), (wire::Received{Incarnation(3), 9, 2}));

  UpdateHead again = test_head(7, 9, 3);
  again.first_chunk = 2;
  again.lease = Epoch(5);  // it moved away and back
  ASSERT_TRUE(incoming.continues(again));
  ASSERT_TRUE(incoming.resume(again, test_terms()).ok());
  EXPECT_EQ(incoming.chunk(0, test_chunk(values, 0)).error().code, Code::kInvalidArgument) << "it is here";
  feed(incoming, values, 2, 3);
  const Result<StagedArrival> staged = incoming.end(test_digest(values), test_trailer().span());
  ASSERT_TRUE(staged.ok()) << "the hash went on too";
  EXPECT_EQ(staged->what.contributors.find(SiteId(7))->lease, Epoch(5));
  EXPECT_EQ(staged->chunks->total_bytes(), kTestValues * sizeof(float));
}

TEST_F(IncomingTest, NothingElseContinuesIt) {
  Incoming incoming = begin(test_head(7, 9, 3));
  feed(incoming, test_values(1), 0, 2);
  const std::vector<std::function<void(UpdateHead&)>> others{
      [](UpdateHead& head) { head.incarnation = Incarnation(4); },
      [](UpdateHead& head) { head.submission = 10; },
      [](UpdateHead& head) { head.round = RoundId(2); },
      [](UpdateHead& head) { head.site = SiteId(8); },
      [](UpdateHead& head) { head.digest_kind = DigestKind::kTree; },
      [](UpdateHead& head) { head.first_chunk = 0; },
      [](UpdateHead& head) { head.first_chunk = 1; },
      [](UpdateHead& head) { head.first_chunk = 3; },
      [](UpdateHead& head) { head.first_chunk = std::numeric_limits<std::uint64_t>::max(); },
  };
  for (std::size_t i = 0; i < others.size(); ++i) {
    UpdateHead head = test_head(7, 9, 3);
    head.first_chunk = 2;
    ASSERT_TRUE(incoming.continues(head));
    others[i](head);
    EXPECT_FALSE(incoming.continues(head)) << i;
    const Result<Incoming> anew = Incoming::begin(head, test_terms(), staging_);
    if (head.first_chunk == 0) continue;
    ASSERT_FALSE(anew.ok()) << i;
    EXPECT_EQ(anew.error().code, Code::kUnavailable) << i;
  }
}

TEST_F(IncomingTest, InTheNextWindowItGoesOn) {
  Terms terms = test_terms();
  terms.late = std::make_shared<const round::Lateness>(round::Lateness{1, {512, 362, 296}, {}, 1});
  Result<Incoming> incoming = Incoming::begin(test_head(7, 9, 3), terms, staging_);
  ASSERT_TRUE(incoming.ok());
  feed(*incoming, test_values(1), 0, 2);
  UpdateHead head = test_head(7, 9, 3);
  head.first_chunk = 2;
  head.round = RoundId(2);
  EXPECT_TRUE(incoming->continues(head));
  UpdateHead other = head;
  other.round = RoundId(0);
  EXPECT_FALSE(incoming->continues(other));

  terms.base_version = ModelVersion(1);  // and there it is admitted
  terms.base.fill(std::byte{1});
  round::Lateness later = *terms.late;
  later.earlier = {{RunId(1), ModelVersion(0), head.base, 4}};
  terms.late = std::make_shared<const round::Lateness>(later);
  ASSERT_TRUE(incoming->resume(head, terms).ok());
  feed(*incoming, test_values(1), 2, 3);
  const Result<StagedArrival> staged = incoming->end(test_digest(test_values(1)), test_trailer().span());
  ASSERT_TRUE(staged.ok()) << staged.error().message;
  EXPECT_EQ(staged->what.contributors.find(SiteId(7))->admitted, ModelVersion(1));
}

TEST_F(IncomingTest, ADiskThatFailsRefusesAndGivesBack) {
  store::StagingBudget none(0);
  Result<Incoming> incoming = Incoming::begin(test_head(7), test_terms(), {&none, &files_, "/spill"});
  ASSERT_TRUE(incoming.ok());
  ASSERT_TRUE(incoming->chunk(0, test_chunk(test_values(1), 0)).ok());
  files_.fail_at(0, store::Fault::kNoSpace);
  EXPECT_EQ(incoming->chunk(1, test_chunk(test_values(1), 1)).error().code, Code::kResourceExhausted);
}

TEST_F(IncomingTest, TheNormIsBoundedAndNotItsSquare) {
  const std::vector<float> values = test_values(1);
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  for (const double factor : {0.99, 1.01}) {
    Terms terms = test_terms();
    terms.norm_max = std::sqrt(squares) * factor;
    Result<Incoming> incoming = Incoming::begin(test_head(7), terms, staging_);
    ASSERT_TRUE(incoming.ok());
    feed(*incoming, values, 0, 3);
    EXPECT_EQ(incoming->end(test_digest(values), test_trailer().span()).ok(), factor > 1) << factor;
  }
}

TEST_F(IncomingTest, AnUpdateThatEndsEarlyIsRefusedThoughItsDigestMatches) {
  const std::vector<float> values = test_values(1);
  Incoming incoming = begin(test_head(7));
  feed(incoming, values, 0, 2);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(values).first(2 * kTestChunkValues)));
  hash.update(round::probe_bytes());
  const Result<StagedArrival> ended = incoming.end(wire::digest_to_proto(hash.finish()), test_trailer().span());
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().message, HasSubstr("2 of 3 chunks"));
  EXPECT_FALSE(round::drops_update(ended.error().code)) << "it was told of a refusal, and may come again";
}

TEST_F(IncomingTest, APartialOfAnotherScaleIsRefused) {
  PartialHead head;
  head.child = NodeId(2);
  head.scale_bits = kTestScale;
  EXPECT_TRUE(Incoming::begin(head, test_terms(), staging_).ok());
  head.scale_bits = kTestScale + 1;
  EXPECT_EQ(Incoming::begin(head, test_terms(), staging_).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::transfer
