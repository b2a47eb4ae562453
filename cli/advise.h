// `fluvial simulate --advise PLAN`: what a round takes for this model over these lines, by codec, form of the model on
// its way down and number of local steps, and which choice follows. Arithmetic on a few measured costs
// (docs/operations/choose.md), not a simulation. Pure but for run_advise().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "core/round/schema.h"

namespace fluvial::cli {

struct AdviceQuestion {
  std::uint64_t values = 0;   // of the model, averaged ones
  std::uint64_t sites = 1;    // that share the coordinator's processor
  double up_bytes_per_s = 0;  // of a site
  double down_bytes_per_s = 0;
  double rtt_s = 0;
  double step_s = 0;                  // one training step at a site
  std::uint64_t local_steps = 1;      // the plan's
  std::string codec = "fp32";         // the plan's
  std::string down = "fp32";          // likewise
  bool is_async = false;              // likewise: its rounds are windows
  std::size_t optimizer_vectors = 0;  // of the model's length, that the plan's optimizer keeps
  // The model's tensors, where they are known: of a codec with several passes what travels follows from them.
  std::optional<round::Schema> schema = {};
  std::uint64_t chunk_values = 1 << 20;
};

struct AdvisedRound {
  std::string codec;
  std::string down;
  std::uint64_t local_steps = 0;
  double down_s = 0;  // the model to the sites, which have the one before, and what a codec hands down beside it
  double train_s = 0;
  double up_s = 0;     // the update
  double other_s = 0;  // encode, decode, add up, commit, and the round trips
  double round_s() const { return down_s + train_s + up_s + other_s; }
  double training_share() const { return train_s / round_s(); }
  double overlapped_s() const { return std::max(train_s, round_s() - train_s); }  // with overlap=True
};

struct Advice {
  AdvisedRound planned;                             // as the plan has it
  std::vector<AdvisedRound> others;                 // every codec and form down with the plan's local steps
  std::vector<std::vector<AdvisedRound>> by_steps;  // for each number of local steps, fewest first, every codec, with
                                                    // the model down as chosen
  AdvisedRound chosen;
  std::string why;
  std::string overlap;  // what it would give the chosen round, in words
  std::string memory;   // that the parents and the sites need for the chosen round, in words
  std::string note;     // what a round stands for, where it is no round
};

// Bytes that a value of the model takes on its way down; kInvalidArgument: not what a plan's `down` may be.
Result<double> down_bytes_a_value(const std::string& down);
// kInvalidArgument: no such codec, or no such form; or a codec with several passes and no schema.
Result<Advice> advise(const AdviceQuestion& question);

struct AdviceOptions {
  std::string plan;          // empty: nobody asked for advice
  std::uint64_t values = 0;  // 0: of the plan's model
  std::uint64_t sites = 1;
  std::string up = "50mbit";
  std::string down = "200mbit";
  std::string rtt = "40ms";
  std::string step = "1s";
  std::string json;
};
int run_advise(const Io& io, const AdviceOptions& options, store::FileSystem& files);

// Bytes a second of "50mbit", "1gbit", "6MB": kInvalidArgument says what was expected.
Result<double> parse_rate(std::string_view text);

}  // namespace fluvial::cli
