#include "core/wire/history_mapping.h"

#include <gtest/gtest.h>

namespace fluvial::wire {
namespace {

TEST(HistoryMapping, ALineageComesBackAsItWas) {
  const round::Lineage lineage = {
      {round::HistoryId(~std::uint64_t{0}), Epoch(5), RunId(2), {{RunId(1), RoundId(200)}, {RunId(2), RoundId(0)}}},
      {round::HistoryId(9), Epoch(6), RunId(2), {}}};
  v1::LeaseGrant grant;
  to_proto(lineage, grant.mutable_histories());
  EXPECT_EQ(from_proto(grant.histories()).value(), lineage);
  EXPECT_TRUE(from_proto(v1::LeaseGrant().histories())->empty());
  grant.mutable_histories(1)->set_began(5);
  EXPECT_EQ(from_proto(grant.histories()).error().code, Code::kInvalidArgument);
}

TEST(HistoryMapping, ALineageThatIsTooLongIsRefused) {
  v1::LeaseGrant grant;
  for (std::size_t i = 0; i <= round::kHistoriesMax; ++i) grant.add_histories();
  EXPECT_EQ(from_proto(grant.histories()).error().code, Code::kInvalidArgument);
  grant.Clear();
  v1::History& history = *grant.add_histories();
  for (std::size_t i = 0; i <= round::kForksMax; ++i) history.add_forks();
  EXPECT_EQ(from_proto(grant.histories()).error().code, Code::kInvalidArgument);
}

TEST(HistoryMapping, AStandingComesBackAsItWas) {
  Digest digest{};
  digest[3] = std::byte{7};
  const round::Standing standing{
      round::HistoryId(9), Epoch(44), {{RunId(1), RoundId(200), true, true, digest}, {RunId(1), RoundId(201)}}};
  v1::Standing message = to_proto(standing);
  EXPECT_EQ(from_proto(message).value(), standing);
  message.mutable_rounds(1)->set_counted(true);
  EXPECT_FALSE(from_proto(message)->rounds[1].counted) << "only what is decided can be";
  message.mutable_rounds(1)->set_sha256("short");
  EXPECT_EQ(from_proto(message).error().code, Code::kInvalidArgument);
  message.clear_rounds();
  for (std::size_t i = 0; i <= round::kKnownRoundsMax; ++i) message.add_rounds();
  EXPECT_EQ(from_proto(message).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::wire
