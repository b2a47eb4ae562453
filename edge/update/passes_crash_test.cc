// A site's life in rounds with two passes (its machine, its arithmetic and its disk) against a root that keeps what it
// counted: the agent dies at every operation of its disk and comes back, and nothing is lost or counted twice.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "core/aggregate/pass_mean.h"
#include "core/aggregate/shapes.h"
#include "edge/logic/in_order.h"
#include "edge/logic/site_machine.h"
#include "edge/update/passes.h"
#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/reference/powersgd.h"
#include "kernels/stream_key.h"

namespace fluvial::edge {
namespace {

namespace reference = kernels::reference;

constexpr std::uint64_t kRoundsOfPasses = 7;
constexpr std::size_t kCrashSide = 30, kCrashRank = 2, kCrashCut = kCrashSide * kCrashSide;
constexpr const char* kPassCodec = "powersgd:rank=2";

// What happens to the site in a round.
enum class PassFate {
  kCounted,
  kCountedInTheSecond,  // attempt: the first one ends after it has sent its second pass
  kDropsOut,            // committed without its second pass
  kUnheard,             // counted in the second attempt, and the commit never reaches it
  kRefused,             // as invalid, in the second pass
  kMissesTheFirst,      // committed without it
};
PassFate fate_of(std::uint64_t round) {
  static constexpr PassFate kFates[kRoundsOfPasses] = {
      PassFate::kCounted, PassFate::kCountedInTheSecond, PassFate::kDropsOut, PassFate::kUnheard,
      PassFate::kRefused, PassFate::kMissesTheFirst,     PassFate::kCounted};
  return kFates[round - 1];
}
bool is_pass_counted(PassFate fate) {
  return fate == PassFate::kCounted || fate == PassFate::kCountedInTheSecond || fate == PassFate::kUnheard;
}

// The openings that the site hears in a round, one after the other.
struct Heard {
  std::uint32_t attempt;
  std::uint32_t pass;
};
std::vector<Heard> script_of(PassFate fate) {
  switch (fate) {
    case PassFate::kCounted:
    case PassFate::kRefused: return {{1, 0}, {1, 1}};
    case PassFate::kCountedInTheSecond:
    case PassFate::kUnheard: return {{1, 0}, {1, 1}, {2, 0}, {2, 1}};
    case PassFate::kDropsOut: return {{1, 0}, {1, 1}, {2, 0}};
    case PassFate::kMissesTheFirst: return {{1, 0}};
  }
  return {};
}

round::ModelRef model_before(std::uint64_t round) {
  Digest digest{};
  digest[0] = static_cast<std::byte>(round);
  return {kRun, ModelVersion(round - 1), digest, kValues * sizeof(float)};
}

// What the others make of a pass with the site.
Buffer mean_of(std::uint64_t round, std::uint32_t attempt) {
  Buffer mean = aggregate::begin_mean({Epoch(1), AttemptId(attempt), 0}, kCrashSide * kCrashRank);
  std::ranges::copy(draw(1000 * round + attempt, kCrashSide * kCrashRank), aggregate::mean_values(mean).begin());
  return mean;
}

// The root, as durable as its journal: it outlives every crash of the site.
struct PassRoot {
  struct Sent {
    Digest digest{};
    std::vector<float> values;
  };
  std::uint64_t round = 1;
  std::size_t at = 0;                                                            // in its script
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>, Sent> sent;  // by round, attempt, pass
  std::map<std::uint64_t, Digest> counted;
  std::uint64_t decided = 0;  // rounds up to here are committed
};

struct PassCrash {};

// One life of the agent, from its start to its end or its death.
class PassLife {
 public:
  PassLife(store::MemoryFileSystem& files, PassRoot& root) : files_(files), root_(root) {}

  void run() {
    auto opened = open_site_store(files_, "/site");
    if (!opened.ok()) throw PassCrash{};
    store_ = std::move(*opened);
    machine_.emplace(pending());
    step(machine_->connected());
    for (; root_.round <= kRoundsOfPasses; ++root_.round, root_.at = 0) {
      const std::vector<Heard> script = script_of(fate_of(root_.round));
      for (; root_.at < script.size() && root_.decided < root_.round; ++root_.at) {
        step(machine_->offered(offer(script[root_.at])));
      }
      commit();
    }
    step(machine_->connected());
    EXPECT_FALSE(machine_->pending().has_value());
  }

 private:
  template <typename T>
  T must(Result<T> result) {
    if (files_.crashed()) throw PassCrash{};
    EXPECT_TRUE(result.ok()) << result.error().to_string();
    return std::move(*result);
  }
  static Pending pending_of(const store::PendingInfo& info) {
    return {info.start.run, info.start.round, info.digest, info.incarnation, info.submission, info.start.from};
  }
  std::optional<Pending> pending() {
    const auto first = must(store_->pending(kRun));
    if (!first) return std::nullopt;
    const auto pass = must(store_->pending_pass(kRun));
    if (!pass) return pending_of(first->info());
    Pending found = pending_of(pass->info());
    found.first = {first->info().incarnation, first->info().submission};
    return found;
  }

  // ---- the root
  Offer offer(const Heard& heard) const {
    Offer offer;
    offer.run = kRun;
    offer.round = RoundId(root_.round);
    offer.base = model_before(root_.round);
    offer.plan = training(root_.round, kPassCodec).plan;
    offer.attempt = AttemptId(heard.attempt);
    offer.epoch = Epoch(1);
    offer.pass = round::Pass{.index = heard.pass, .count = 2, .value_count = 60};
    if (heard.pass == 0) return offer;
    const Buffer mean = mean_of(root_.round, heard.attempt);
    offer.pass->mean = round::VectorRef{sha256(mean.span()), mean.size()};
    return offer;
  }
  void commit() {
    const PassFate fate = fate_of(root_.round);
    const std::uint32_t last = script_of(fate).back().attempt;
    if (root_.decided < root_.round && is_pass_counted(fate)) {
      root_.counted[root_.round] = root_.sent.at({root_.round, last, 1}).digest;
    }
    root_.decided = root_.round;
    if (fate == PassFate::kUnheard) return;
    Verdict verdict;
    if (is_pass_counted(fate)) verdict.counted = root_.counted.at(root_.round);
    verdict.refused = fate == PassFate::kRefused;
    verdict.late = !is_pass_counted(fate) && !verdict.refused;
    step(machine_->committed(kRun, RoundId(root_.round), verdict, model_before(root_.round + 1)));
  }
  Outcome outcome(const Pending& pending) const {
    const std::uint64_t round = pending.round.value();
    if (round > root_.decided) return Outcome::kPending;
    const auto counted = root_.counted.find(round);
    if (counted != root_.counted.end() && counted->second == pending.digest) return Outcome::kCounted;
    return fate_of(round) == PassFate::kRefused ? Outcome::kRefused : Outcome::kLate;
  }

  // ---- the site
  void step(Effects effects) {
    effects_.carry_out(std::move(effects), [this](const auto& decided) { apply(decided); });
  }
  void apply(const FetchModel& effect) { step(machine_->model_ready(effect.model)); }
  void apply(const FetchState&) { ADD_FAILURE() << "the state is as drawn"; }
  void apply(const FetchMean& effect) { step(machine_->mean_ready(effect.offer.pass->mean->digest)); }
  void apply(const Train& effect) { step(machine_->trained(effect.work)); }
  void apply(const Encode& effect) {
    const Training made = training(effect.offer.round.value(), kPassCodec);
    step(machine_->encoded(effect.work, pending_of(must(encode_first_pass(made.job(), {}, *store_, serial_)).info())));
  }
  void apply(const EncodePass& effect) {
    const Offer& offer = effect.offer;
    const Buffer mean = mean_of(offer.round.value(), offer.attempt.value());
    const PassJob job{offer.run, offer.round,   offer.plan, offer.pass->made_from(), mean.span(),
                      Epoch(1),  offer.attempt, {},         DigestKind::kStream};
    must(encode_pass(job, *store_, serial_));
    step(machine_->pass_encoded(*pending()));
  }
  void apply(const Fold& effect) {
    must(fold_update(training(effect.offer.round.value(), kPassCodec).job(), *store_, serial_));
    step(machine_->folded(effect.work));
  }
  void apply(const Send& effect) {
    const std::uint32_t pass = effect.offer.pass_index();
    const store::PendingUpdate update = *must(pass == 0 ? store_->pending(kRun) : store_->pending_pass(kRun));
    PassRoot::Sent sent{update.info().digest, {}};
    for (std::uint64_t i = 0; i < update.info().start.chunk_count; ++i) {
      const Buffer chunk = must(update.read_chunk(i));
      const std::size_t before = sent.values.size();
      sent.values.resize(before + chunk.size() / sizeof(float));
      std::ranges::copy(chunk.span(), std::as_writable_bytes(std::span(sent.values).subspan(before)).begin());
    }
    const auto [known, is_new] =
        root_.sent.try_emplace({effect.offer.round.value(), effect.offer.attempt.value(), pass}, sent);
    if (!is_new) EXPECT_EQ(known->second.digest, sent.digest) << "one pass of an attempt, one content";
  }
  void apply(const StopSending&) {}
  void apply(const AskRun&) {}
  void apply(const Ask& effect) { step(machine_->answered(effect.pending, outcome(effect.pending))); }
  void apply(const Resolve& effect) {
    must(resolve_pending(*store_, effect.pending.run, effect.pending.round, effect.outcome));
    step(machine_->resolved(effect.pending));
  }
  void apply(const CompleteRun&) { ADD_FAILURE() << "the parent ends no run"; }
  void apply(const EnterHistory&) { ADD_FAILURE() << "there is one history"; }
  void apply(const DeclineRound& effect) { ADD_FAILURE() << effect.error.to_string(); }

  store::MemoryFileSystem& files_;
  PassRoot& root_;
  Serial serial_;
  std::unique_ptr<store::SiteStore> store_;
  std::optional<SiteMachine> machine_;
  InOrder<Effect> effects_;
};

struct PassEnd {
  bool crashed = false;
  std::vector<float> residual = std::vector<float>(kValues);
  std::map<std::uint64_t, Digest> counted;
};

// P Q^T, and what is not cut, in fp64.
void take(std::vector<double>& sum, std::uint64_t round, std::uint32_t attempt, const std::vector<float>& sent) {
  const Buffer mean = mean_of(round, attempt);
  const std::span<const float> p = aggregate::mean_values(ByteSpan(mean.span()));
  const std::vector<double> basis = reference::orthonormal({p.begin(), p.end()}, kCrashSide, kCrashRank);
  const reference::Matrix product = reference::outer(basis, {sent.begin(), sent.begin() + kCrashSide * kCrashRank},
                                                     kCrashSide, kCrashSide, kCrashRank);
  for (std::size_t i = 0; i < kCrashCut; ++i) sum[i] -= product.values[i];
  for (std::size_t i = kCrashCut; i < kValues; ++i)
    sum[i] -= static_cast<double>(sent[kCrashSide * kCrashRank + i - kCrashCut]);
}

// Dies at operation `at`, if there is one, and again some operations into the next life.
PassEnd live(std::optional<std::uint64_t> at, store::Unsynced unsynced) {
  store::MemoryFileSystem files;
  PassRoot root;
  PassEnd end;
  std::optional<std::uint64_t> next = at;
  for (;;) {
    if (next) files.fail_at(*next, store::Fault::kCrash);
    next.reset();
    try {
      PassLife(files, root).run();
    } catch (const PassCrash&) {
      EXPECT_TRUE(files.crashed()) << "an error without a crash";
    }
    if (!files.crashed()) break;  // it may also have died while it ended
    files.restart(unsynced, *at);
    if (!end.crashed) next = *at * 31 % 97;
    end.crashed = true;
  }
  files.clear_fault();
  EXPECT_TRUE(open_store(files)->read_residual(kRun, 0, end.residual).ok());
  end.counted = root.counted;

  // In every coordinate, the counted, remaining and refused parts add up to what the site made.
  std::vector<double> balance(kValues);
  for (std::uint64_t r = 1; r <= kRoundsOfPasses; ++r) {
    if (fate_of(r) == PassFate::kRefused) continue;  // made, and rightly dropped
    const std::vector<float> base = draw(r), local = draw(r + 100);
    for (std::size_t i = 0; i < kValues; ++i)
      balance[i] += static_cast<double>(base[i]) - static_cast<double>(local[i]);
  }
  for (const auto& [round, digest] : root.counted) {
    const std::uint32_t last = script_of(fate_of(round)).back().attempt;
    take(balance, round, last, root.sent.at({round, last, 1}).values);
  }
  for (std::size_t i = 0; i < kValues; ++i) balance[i] -= static_cast<double>(end.residual[i]);
  for (std::size_t i = 0; i < kValues; ++i) {
    if (std::fabs(balance[i]) < 1e-4) continue;
    ADD_FAILURE() << "the books are off by " << balance[i] << " at value " << i;
    break;
  }
  return end;
}

TEST(PassesCrash, AtEveryOperationOfTheDisk) {
  const PassEnd calm = live({}, store::Unsynced::kLost);
  ASSERT_FALSE(testing::Test::HasFailure());
  EXPECT_EQ(calm.counted.size(), 4u);
  for (std::uint64_t at = 0;; ++at) {
    static constexpr store::Unsynced kModes[] = {store::Unsynced::kLost, store::Unsynced::kKept,
                                                 store::Unsynced::kTorn};
    const PassEnd end = live(at, kModes[at % 3]);
    ASSERT_FALSE(testing::Test::HasFailure()) << "crash at operation " << at;
    if (!end.crashed) break;
    // It is as if it had never died: the same bytes were counted, the same residual is left.
    ASSERT_EQ(end.counted, calm.counted) << "crash at operation " << at;
    ASSERT_EQ(end.residual, calm.residual) << "crash at operation " << at;
  }
}

}  // namespace
}  // namespace fluvial::edge
