#include "cli/round_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A coordinator whose journal holds the rounds after `pruned`, up to `last`.
struct Journal {
  std::uint64_t pruned = 0;
  std::uint64_t last = 0;
  std::uint64_t sites = 2;
  std::uint64_t greatest_page = 0;

  Result<json::value> page(std::uint64_t from, std::uint64_t limit) {
    json::array rounds;
    for (std::uint64_t round = std::max(from, pruned + 1); round <= last && rounds.size() < limit; ++round) {
      json::array contributors;
      for (std::uint64_t site = 0; site < sites; ++site) contributors.push_back({{"name", "a"}, {"weight", 3}});
      rounds.push_back(json::object{{"round", round}, {"contributors", std::move(contributors)}});
    }
    greatest_page = std::max<std::uint64_t>(greatest_page, rounds.size() * sites);
    return json::value(json::object{{"pruned", pruned}, {"rounds", std::move(rounds)}});
  }
};

struct Output {
  Result<Exported> exported;
  std::vector<std::uint64_t> rounds;
};
Output exported(Journal& journal, std::uint64_t from, const std::function<void(std::uint64_t)>& asked = {}) {
  Output output{Exported{}, {}};
  const auto fetch = [&](std::uint64_t at, std::uint64_t limit) {
    if (asked) asked(at);
    return journal.page(at, limit);
  };
  const auto write = [&](std::string_view line) -> Status {
    EXPECT_EQ(line.back(), '\n');
    output.rounds.push_back(count_member(parse_json(line, "a line").value(), "round"));
    return {};
  };
  output.exported = export_rounds(fetch, write, from, ExportFormat::kJsonLines);
  return output;
}

TEST(RoundExport, EveryRoundOnceInOrderAndPageByPage) {
  Journal journal{.last = 5'000, .sites = 100};
  const Output output = exported(journal, 1);
  ASSERT_TRUE(output.exported.ok());
  ASSERT_EQ(output.rounds.size(), 5'000U);
  for (std::uint64_t i = 0; i < 5'000; ++i) EXPECT_EQ(output.rounds[i], i + 1);
  EXPECT_LE(journal.greatest_page, 20'000U) << "what is in memory at once";
  EXPECT_EQ(output.exported->first, 1U);
  EXPECT_EQ(output.exported->last, 5'000U);
}

TEST(RoundExport, WhatIsPrunedIsNamed) {
  Journal journal{.pruned = 40, .last = 60};
  const Output output = exported(journal, 10);
  ASSERT_TRUE(output.exported.ok());
  EXPECT_EQ(output.rounds.size(), 20U);
  EXPECT_EQ(output.exported->pruned, 40U);
  EXPECT_EQ(output.exported->first, 41U);
  const Output none = exported(journal, 61);
  EXPECT_EQ(none.exported->rounds, 0U);
}

TEST(RoundExport, RoundsThatArePrunedMeanwhileAreAnError) {
  Journal journal{.last = 3'000};
  const Output output = exported(journal, 1, [&](std::uint64_t at) {
    if (at > 1) journal.pruned = 2'000;
  });
  ASSERT_FALSE(output.exported.ok());
  EXPECT_EQ(output.exported.error().code, Code::kDataLoss);
  EXPECT_THAT(output.exported.error().message, HasSubstr("rounds 17 to 2000 were pruned"));
}

TEST(RoundExport, CsvIsALineForEachContributorAndRefusal) {
  const json::value round =
      parse_json(R"({"run":1,"round":7,"attempt":1,"committed_at":"2026-01-31T12:00:00.123Z","seconds":1.5,
    "participants":3,"late":0,"weight":30,"model_sha256":"ab","master_sha256":"ba","bytes_up":5,"bytes_down":6,"metrics":{"loss":0.5,"x":1},
    "evaluation":{},"contributors":[{"name":"a","weight":10,"digest":"cd","metrics":{"loss":0.5},
     "staleness":1,"own_round":5,"share":0.25,"parent":"aggregator-1"},
    {"name":"b","weight":20,"digest":"ef","metrics":{}}],
    "refused":[{"name":"c","code":"data_loss","message":"=HYPERLINK(\"http\"), and\nmore"}]})",
                 "test")
          .value();
  const std::string text = csv_header() + csv_lines(round);
  EXPECT_THAT(text, StartsWith("run,round,attempt,committed_at,seconds,participants,late,weight,model_sha256,"));
  EXPECT_THAT(text, HasSubstr(",site_metrics,code,message,staleness,own_round,share,parent\n"));
  const std::string start =
      "1,7,1,2026-01-31T12:00:00.123Z,1.5,3,0,30,ab,,5,6,\"{\"\"loss\"\":0.5,\"\"x\"\":1}\",{},ba,";
  EXPECT_THAT(text, HasSubstr("\n" + start + "a,counted,10,cd,\"{\"\"loss\"\":0.5}\",,,1,5,0.25,aggregator-1\n"));
  EXPECT_THAT(text, HasSubstr("\n" + start + "b,counted,20,ef,{},,,,,,\n"));
  EXPECT_THAT(text, HasSubstr("c,refused,,,,data_loss,\"'=HYPERLINK(\"\"http\"\"), and\nmore\",,,,\n")) << "no formula";
}

}  // namespace
}  // namespace fluvial::cli
