// Exact sums through real processes, for each codec and for flat, regional and deep trees.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "core/store/file_system.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

value read_json(const std::string& path) {
  store::PosixFileSystem files;
  const auto content = store::read_file(files, path, 1 << 20);
  EXPECT_TRUE(content.ok()) << content.error().message;
  return content.ok() ? cli::parse_json(as_text(content->span()), path).value() : value();
}

constexpr int kBenchParams = 30'000;

struct Shape {
  const char* codec;
  int sites;
  int aggregators;
  int tiers;
  const char* down = "fp32";
  int rounds = 3;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << fmt::format("{}, {} sites, {} aggregators, {} tiers", shape.codec, shape.sites, shape.aggregators,
                      shape.tiers);
}

// What the command writes.
value bench_tree(const Shape& shape) {
  const auto folder = std::move(cli::WorkFolder::open("", false, "test")).value();
  const auto supervisor = std::move(cli::Supervisor::create(std::chrono::seconds(20))).value();
  const CommandRun ran = run_fluvial(*supervisor, folder, {"bench",         "tree",
                                                           "--sites",       std::to_string(shape.sites),
                                                           "--aggregators", std::to_string(shape.aggregators),
                                                           "--tiers",       std::to_string(shape.tiers),
                                                           "--params",      std::to_string(kBenchParams),
                                                           "--codec",       shape.codec,
                                                           "--down",        shape.down,
                                                           "--rounds",      std::to_string(shape.rounds),
                                                           "--sum-digest",  "--no-bound",
                                                           "--json",        folder.file("bench.json")});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  return ran.exit_status == 0 ? read_json(folder.file("bench.json")) : value();
}

// Beside the model, in a round of three: with powersgd the mean P of its matrix of 173 x 172, and from the second one
// on the state; with onebit_adam and freeze=1 from then on the momentum, a chunk of 118 scales and as many blocks of
// bits.
double vectors_down(const Shape& shape) {
  if (std::string(shape.codec) == "onebit_adam:freeze=1") return 2.0 / 3 * (8 + 4 * 118 + kBenchParams / 8 + 2);
  if (std::string(shape.codec) != "powersgd") return 0;
  constexpr double kRank = 2, kMean = 16 + 4 * kRank * 173, kState = 32 + 4 * kRank * 172;
  return kMean + 2 * kState / 3;
}

class BenchTree : public ::testing::TestWithParam<Shape> {};

TEST_P(BenchTree, CommitsExactSums) {
  const Shape shape = GetParam();
  const value figures = bench_tree(shape);
  EXPECT_TRUE(cli::bool_member(figures, "exact"));
  EXPECT_EQ(cli::array_member(figures, "round_seconds").size(), 3U);
  const std::size_t inner = shape.aggregators == 0 ? 0 : shape.aggregators + shape.tiers - 1;
  EXPECT_EQ(cli::array_member(figures, "processes").size(), 1 + inner + 2 * shape.sites);
  EXPECT_GT(cli::number_member(figures, "bytes_up_per_site_round", 0), 0);
  if (shape.aggregators > 0) {  // one copy of the model crosses each of the coordinator's lines
    const int children = shape.tiers == 1 ? shape.aggregators : 1;
    EXPECT_DOUBLE_EQ(cli::number_member(figures, "bytes_down_root_round", 0),
                     children * (kBenchParams * sizeof(float) + vectors_down(shape)));
  }
  for (const value& process : cli::array_member(figures, "processes")) {
    EXPECT_GT(cli::count_member(process, "peak_rss_bytes"), 0U);
    EXPECT_GT(cli::number_member(process, "cpu_seconds", -1), 0);
  }
  EXPECT_EQ(cli::count_member(figures, "warm_rounds"), 2U);
  std::map<std::string, std::uint64_t> processes;
  for (const value& role : cli::array_member(figures, "warm_round")) {
    processes[cli::text_member(role, "role")] = cli::count_member(role, "processes");
    EXPECT_GT(cli::count_member(role, "peak_own_bytes"), 0U);
    EXPECT_GT(cli::number_member(role, "voluntary_switches", 0), 0) << "each waits for the others in every round";
    EXPECT_GE(cli::number_member(role, "cpu_seconds", -1), 0);
  }
  EXPECT_EQ(processes["coordinator"], 1U);
  EXPECT_EQ(processes["aggregator"], inner);
  EXPECT_EQ(processes["site"], static_cast<std::uint64_t>(shape.sites));
  EXPECT_EQ(processes["worker"], static_cast<std::uint64_t>(shape.sites));
}

// The same contributions through a flat tree and a deep one, arriving in whatever order they do.
TEST(BenchTrees, TheSameContributionsMakeTheSameModelInEveryTree) {
  const std::string flat = cli::text_member(bench_tree({"fp32", 5, 0, 1}), "model_sha256");
  EXPECT_EQ(flat.size(), 64U);
  EXPECT_EQ(cli::text_member(bench_tree({"fp32", 5, 2, 1}), "model_sha256"), flat);
  EXPECT_EQ(cli::text_member(bench_tree({"fp32", 5, 3, 3}), "model_sha256"), flat);
}

// Flat, with aggregators, and three tiers deep: one model, exact, and at most so many bytes a value from each site.
void expect_one_model(const char* codec, int rounds, double bytes_most) {
  std::string flat;
  for (const Shape& shape : {Shape{codec, 5, 0, 1, "fp32", rounds}, Shape{codec, 5, 2, 1, "fp32", rounds},
                             Shape{codec, 5, 3, 3, "fp32", rounds}}) {
    const value figures = bench_tree(shape);
    EXPECT_TRUE(cli::bool_member(figures, "exact"));
    const std::string model = cli::text_member(figures, "model_sha256");
    if (flat.empty()) flat = model;
    EXPECT_EQ(model.size(), 64U);
    EXPECT_EQ(model, flat);
    EXPECT_LT(cli::number_member(figures, "bytes_up_per_site_round", 1e9), bytes_most * kBenchParams);
  }
}

// Two vectors of each site, and between them their mean, which all sites must have to the bit.
TEST(BenchTrees, RoundsWithTwoPassesMakeTheSameModelInEveryTree) { expect_one_model("powersgd:rank=4", 3, 0.4); }

// Two rounds in fp32, three at a bit a value, each with the momentum of the one before, which all sites must have.
TEST(BenchTrees, AdamInOneBitMakesTheSameModelInEveryTree) {
  expect_one_model("onebit_adam:freeze=2", 5, 1.8);
  EXPECT_TRUE(cli::bool_member(bench_tree({"onebit_adam:freeze=1,zstd=1", 3, 2, 1, "delta:int8", 4}), "exact"));
}

// The model goes down as a difference: the first one whole, then in a quarter of its bytes, and through every tree the
// same.
TEST(BenchTrees, ADifferenceGoesDownTheSameInEveryTree) {
  const value flat = bench_tree({"fp32", 3, 0, 1, "delta:int8"});
  EXPECT_TRUE(cli::bool_member(flat, "exact"));
  const value deep = bench_tree({"fp32", 3, 2, 2, "delta:int8"});
  EXPECT_TRUE(cli::bool_member(deep, "exact"));
  EXPECT_EQ(cli::text_member(deep, "model_sha256"), cli::text_member(flat, "model_sha256"));
  EXPECT_LT(cli::number_member(deep, "bytes_down_root_round", 0), 0.6 * kBenchParams * sizeof(float));
  for (const char* down : {"fp16", "bf16", "delta:topk:ratio=0.01"}) {
    EXPECT_TRUE(cli::bool_member(bench_tree({"int8", 3, 2, 1, down}), "exact")) << down;
  }
}

TEST(BenchBound, StandsBesideTheTreeThatWasMeasured) {
  const auto folder = std::move(cli::WorkFolder::open("", false, "test")).value();
  const auto supervisor = std::move(cli::Supervisor::create(std::chrono::seconds(20))).value();
  const std::string path = folder.file("bench.json");
  const CommandRun tree = run_fluvial(*supervisor, folder,
                                      {"bench", "tree", "--sites", "3", "--aggregators", "0", "--params",
                                       std::to_string(kBenchParams), "--rounds", "2", "--json", path});
  ASSERT_EQ(tree.exit_status, 0) << tree.output;
  const value measured = read_json(path);
  EXPECT_GT(cli::number_member(measured, "processor_bound_seconds", 0), 0);
  const double ratio = cli::number_member(measured, "round_over_processor_bound", 0);
  const double digested = cli::number_member(measured, "round_over_processor_bound_with_digests", 0);
  EXPECT_GT(digested, 0);
  EXPECT_LT(digested, ratio) << "a bound that has the digests as well is a greater one";

  const CommandRun ran = run_fluvial(*supervisor, folder, {"bench", "bound", "--tree", path, "--json"});
  ASSERT_EQ(ran.exit_status, 0) << ran.output;
  const value bound = cli::parse_json(ran.output, "the output").value();
  EXPECT_EQ(cli::count_member(bound, "sites"), 3U);
  EXPECT_EQ(cli::number_member(bound, "bytes_down", 0), 3.0 * kBenchParams * sizeof(float));
  EXPECT_DOUBLE_EQ(cli::number_member(bound, "bytes_up", 0),
                   3 * cli::number_member(measured, "bytes_up_per_site_round", 0));
  EXPECT_LE(cli::number_member(bound, "bytes_up_least", 1e300), cli::number_member(bound, "bytes_up", 0));
  EXPECT_EQ(cli::array_member(bound, "collectives").size(), 5U);
  for (const char* cost : {"cipher_seconds", "tcp_seconds", "kernel_seconds", "file_cpu_seconds", "worker_seconds",
                           "processor_bound_seconds", "memory_seconds", "disk_seconds"}) {
    EXPECT_GT(cli::number_member(bound, cost, 0), 0) << cost;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, BenchTree,
                         ::testing::Values(Shape{"fp32", 3, 0, 1}, Shape{"fp32", 4, 2, 1}, Shape{"bf16", 4, 2, 1},
                                           Shape{"int8", 4, 2, 1}, Shape{"topk:ratio=0.05", 4, 2, 1},
                                           Shape{"int8", 5, 2, 3}, Shape{"dgc:ratio=0.02", 4, 2, 1},
                                           Shape{"sign:mode=vote", 4, 2, 1}, Shape{"ring:max=0.05", 4, 2, 2},
                                           Shape{"powersgd", 4, 2, 1}, Shape{"onebit_adam:freeze=1", 4, 2, 1}));

}  // namespace
}  // namespace fluvial::integration
