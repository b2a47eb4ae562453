// What the admin API says of a committed round.
#include "coordinator/service/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

namespace fluvial::coordinator {
namespace {

namespace json = boost::json;

Digest filled(int byte) {
  Digest digest;
  digest.fill(static_cast<std::byte>(byte));
  return digest;
}
std::string hex_of(int byte) { return to_hex(filled(byte)); }

std::string name_of(NodeId node) { return "site-" + std::to_string(node.value()); }

TEST(RoundJson, HasThePassesBeforeTheLastAndTheStateThatTheyLeft) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .attempt = AttemptId(1)};
  row.record.epoch = Epoch(6);
  round::PassRecord& first = row.record.passes.emplace_back();
  first.mean = {filled(7), 64};
  for (const std::uint32_t site : {2, 3}) {
    ASSERT_TRUE(
        first.contributors.add({SiteId(site), Epoch(1), 10 * site, filled(static_cast<int>(site)), 0, {}}).ok());
  }
  round::Contribution last{SiteId(2), Epoch(1), 20, filled(9), 0, {}};
  last.from = {1, first.mean.digest};
  ASSERT_TRUE(row.record.contributors.add(last).ok());
  row.record.codec_state = round::VectorRef{filled(8), 96};

  const json::object round = json::parse(round_json(row, name_of)).as_object();
  const json::array passes{{{"pass", 0},
                            {"mean", hex_of(7)},
                            {"contributors",
                             {{{"site", 2}, {"name", "site-2"}, {"weight", 20}, {"digest", hex_of(2)}},
                              {{"site", 3}, {"name", "site-3"}, {"weight", 30}, {"digest", hex_of(3)}}}}}};
  EXPECT_EQ(round.at("passes"), passes) << json::serialize(round);
  EXPECT_EQ(round.at("epoch"), 6) << "what a mean is of, with the attempt";
  EXPECT_EQ(round.at("codec_state"), (json::object{{"sha256", hex_of(8)}, {"bytes", 96}}));
  EXPECT_EQ(round.at("contributors").as_array().size(), 1U) << "of the last pass alone";
}

TEST(RoundJson, NamesWhoseMetricsAreInNoMean) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .attempt = AttemptId(1)};
  const auto add = [&](std::uint32_t site, double loss, double huge) {
    ASSERT_TRUE(
        row.record.contributors.add({SiteId(site), Epoch(1), 10, filled(2), 0, {{"loss", loss}, {"huge", huge}}}).ok());
  };
  add(2, std::nan(""), 1);
  add(3, 0.5, 1.7e308);
  add(4, std::numeric_limits<double>::infinity(), 2);
  const json::object round = json::parse(round_json(row, name_of)).as_object();
  EXPECT_EQ(round.at("not_finite"), (json::object{{"huge", {"site-3"}}, {"loss", {"site-2", "site-4"}}}));
  EXPECT_EQ(round.at("contributors").at(0).at("metrics"), (json::object{{"huge", 1.0}}));
  EXPECT_EQ(round.at("contributors").at(1).at("metrics"), (json::object{{"loss", 0.5}}));
}

TEST(RoundJson, NamesWhoAdmittedAContributionWhereItIsKnown) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .attempt = AttemptId(1)};
  for (const std::uint32_t site : {2, 3, 4}) {
    ASSERT_TRUE(row.record.contributors.add({SiteId(site), Epoch(1), 10, filled(2), 0, {}}).ok());
  }
  row.parents = {{SiteId(2), NodeId(9)}, {SiteId(3), NodeId(0)}};
  const json::object round = json::parse(round_json(row, name_of)).as_object();
  const json::array& contributors = round.at("contributors").as_array();
  EXPECT_EQ(contributors.at(0).at("parent"), "site-9");
  EXPECT_EQ(contributors.at(1).at("parent"), "coordinator");
  EXPECT_FALSE(contributors.at(2).as_object().contains("parent"));
  EXPECT_EQ(committed_line(row, name_of).find("parent"), std::string::npos) << "a line of a watch is always the same";
}

TEST(RoundJson, OfARoundWithOnePassSaysNothingOfPasses) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .attempt = AttemptId(1)};
  const json::object round = json::parse(round_json(row, name_of)).as_object();
  EXPECT_FALSE(round.contains("passes"));
  EXPECT_FALSE(round.contains("codec_state"));
}

}  // namespace
}  // namespace fluvial::coordinator
