// A site's whole life (its machine, its arithmetic and its disk) against a root that keeps what it counted: the agent
// dies at every operation of its disk and comes back, and nothing is lost or counted twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "edge/logic/in_order.h"
#include "edge/logic/site_machine.h"
#include "edge/update/resolve.h"
#include "edge/update/test_support.h"

namespace fluvial::edge {
namespace {

constexpr std::uint64_t kRounds = 12;
constexpr RunId kNextRun{5};  // continues it

// What happens to the site in a round.
enum class Fate {
  kCounted,
  kLate,             // committed without it
  kCountedUnheard,   // counted, and the commit never reaches it
  kCountedUnnamed,   // counted; the commit comes by a way that does not know it, and the first answer is lost
  kRefused,          // as invalid
  kStraggler,        // the round closes while it trains
  kClosesMeanwhile,  // the round closes while it encodes
  kAnotherCounted,   // the commit names the site with another digest: an older incarnation's
  kLateBeyond,       // as kLate, and then it is beyond the plan's bounds: dropped
};
constexpr RoundId kDropped{11};
Fate fate_of(RoundId round) {
  static constexpr Fate kFates[kRounds] = {Fate::kCounted,         Fate::kCountedUnheard, Fate::kLate,
                                           Fate::kCountedUnnamed,  Fate::kRefused,        Fate::kStraggler,
                                           Fate::kClosesMeanwhile, Fate::kAnotherCounted, Fate::kCounted,
                                           Fate::kCountedUnheard,  Fate::kLateBeyond,     Fate::kCounted};
  return kFates[(round.value() - 1) % kRounds];
}
bool is_counted(Fate fate) {
  return fate == Fate::kCounted || fate == Fate::kCountedUnheard || fate == Fate::kCountedUnnamed;
}

round::ModelRef model_before(RoundId round) {
  Digest digest{};
  digest[0] = static_cast<std::byte>(round.value());
  return {kRun, ModelVersion(round.value() - 1), digest, kValues * sizeof(float)};
}

void add(std::vector<double>& sum, const std::vector<float>& values, double factor = 1) {
  for (std::size_t i = 0; i < kValues; ++i) sum[i] += factor * static_cast<double>(values[i]);
}

// The root, as durable as its journal: it outlives every crash of the site.
struct Root {
  struct Sent {
    Digest digest{};
    std::vector<Buffer> chunks;
    std::vector<float> p;
    std::vector<float> decoded;
  };
  RoundId round{1};
  std::set<RoundId> committed;
  std::map<RoundId, Sent> sent;
  std::map<RoundId, Digest> counted;
  std::set<RoundId> answer_lost;
};

struct Crash {};

// One life of the agent, from its start to its end or its death.
class Life {
 public:
  Life(store::MemoryFileSystem& files, Root& root, const std::string& codec)
      : files_(files), root_(root), codec_(codec) {}

  void run() {
    auto opened = open_site_store(files_, "/site");
    if (!opened.ok()) throw Crash{};
    store_ = std::move(*opened);
    std::optional<Pending> found;
    for (const store::PendingInfo& info : must(store_->all_pending())) found = pending_of(info);
    machine_.emplace(found);
    step(machine_->connected());
    while (root_.round.value() <= kRounds) {
      const RoundId round = root_.round;
      if (!root_.committed.contains(round)) {
        Offer offer;
        offer.run = kRun;
        offer.round = round;
        offer.base = model_before(round);
        step(machine_->offered(offer));
        commit(round);
      }
      root_.round = round.next();
      if (fate_of(round) != Fate::kCountedUnheard) tell(round);
    }
    step(machine_->connected());
    step(machine_->connected());  // the answer to the first may have been lost
    EXPECT_FALSE(machine_->pending().has_value());
    must(store_->begin_run(kNextRun, std::vector{kRun}, kValues));
  }

 private:
  template <typename T>
  T must(Result<T> result) {
    if (files_.crashed()) throw Crash{};
    EXPECT_TRUE(result.ok()) << result.error().to_string();
    return std::move(*result);
  }
  static Pending pending_of(const store::PendingInfo& info) {
    return {info.start.run, info.start.round, info.digest, info.incarnation, info.submission};
  }

  // ---- the root
  void commit(RoundId round) {
    root_.committed.insert(round);
    const auto sent = root_.sent.find(round);
    if (sent != root_.sent.end() && is_counted(fate_of(round))) root_.counted[round] = sent->second.digest;
  }
  void tell(RoundId round) {
    const Fate fate = fate_of(round);
    Verdict verdict;
    if (fate == Fate::kAnotherCounted) {
      verdict.counted = Digest{};
    } else if (fate == Fate::kRefused) {
      verdict.refused = true;
    } else if (root_.counted.contains(round)) {
      if (fate != Fate::kCountedUnnamed) verdict.counted = root_.counted.at(round);
    } else {
      verdict.late = true;
    }
    step(machine_->committed(kRun, round, verdict, model_before(round.next())));
  }
  Outcome outcome(const Pending& pending) const {
    if (!root_.committed.contains(pending.round)) return Outcome::kPending;
    const auto counted = root_.counted.find(pending.round);
    if (counted != root_.counted.end() && counted->second == pending.digest) return Outcome::kCounted;
    return fate_of(pending.round) == Fate::kRefused ? Outcome::kRefused : Outcome::kLate;
  }

  // ---- the site
  void step(Effects effects) {
    effects_.carry_out(std::move(effects), [this](const auto& decided) { apply(decided); });
  }
  Training trained(const Offer& offer) const {
    Training made = training(offer.round.value(), codec_);
    if (fate_of(offer.round) == Fate::kLateBeyond) made.plan.residual_norm_max = 0.001;
    return made;
  }

  void apply(const FetchModel& effect) { step(machine_->model_ready(effect.model)); }
  void apply(const Train& effect) {
    const RoundId round = effect.offer.round;
    if (fate_of(round) == Fate::kStraggler) commit(round), tell(round);
    step(machine_->trained(effect.work));
  }
  void apply(const Encode& effect) {
    const RoundId round = effect.offer.round;
    const Training training = trained(effect.offer);
    const store::PendingUpdate update = must(encode_update(training.job(), *store_, serial_));
    if (fate_of(round) == Fate::kClosesMeanwhile) commit(round), tell(round);
    step(machine_->encoded(effect.work, pending_of(update.info())));
  }
  void apply(const Fold& effect) {
    const Training training = trained(effect.offer);
    must(fold_update(training.job(), *store_, serial_));
    step(machine_->folded(effect.work));
  }
  void apply(const Send& effect) {
    const store::PendingUpdate update = *must(store_->pending(kRun));
    Root::Sent sent;
    sent.digest = update.info().digest;
    for (std::uint64_t i = 0; i < update.info().start.chunk_count; ++i)
      sent.chunks.push_back(must(update.read_chunk(i)));
    sent.p.resize(kValues);
    if (!update.read_p(0, sent.p).ok()) throw Crash{};
    const RoundId round = effect.offer.round;
    const auto before = root_.sent.find(round);
    if (before != root_.sent.end()) {
      EXPECT_EQ(before->second.digest, sent.digest) << "one submission, one content";
      EXPECT_EQ(before->second.p, sent.p);
      for (std::size_t i = 0; i < sent.chunks.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(before->second.chunks[i].span(), sent.chunks[i].span()));
      }
      return;
    }
    sent.decoded.resize(kValues);
    const auto codec = kernels::make_codec(kernels::parse_codec(codec_).value()).value();
    const kernels::ChunkLayout layout{kValues, kChunk};
    for (std::size_t i = 0; i < sent.chunks.size(); ++i) {
      EXPECT_TRUE(codec->decode_chunk(sent.chunks[i].span(), layout.of(std::span(sent.decoded), i)).ok());
    }
    root_.sent.emplace(round, std::move(sent));
  }
  void apply(const StopSending&) {}
  void apply(const AskRun&) {}  // the parent ends no run
  void apply(const Ask& effect) {
    const RoundId round = effect.pending.round;
    if (fate_of(round) == Fate::kCountedUnnamed && root_.answer_lost.insert(round).second) return;
    step(machine_->answered(effect.pending, outcome(effect.pending)));
  }
  void apply(const Resolve& effect) {
    must(resolve_pending(*store_, effect.pending.run, effect.pending.round, effect.outcome));
    step(machine_->resolved(effect.pending));
  }
  void apply(const CompleteRun&) { ADD_FAILURE() << "the parent ends no run"; }
  void apply(const FetchState&) { ADD_FAILURE() << "rounds have one pass"; }  // passes_crash_test.cc has two
  void apply(const FetchMean&) { ADD_FAILURE() << "rounds have one pass"; }
  void apply(const EncodePass&) { ADD_FAILURE() << "rounds have one pass"; }
  void apply(const EnterHistory&) { ADD_FAILURE() << "there is one history"; }
  void apply(const DeclineRound& effect) { ADD_FAILURE() << effect.error.to_string(); }

  store::MemoryFileSystem& files_;
  Root& root_;
  std::string codec_;
  Serial serial_;
  std::unique_ptr<store::SiteStore> store_;
  std::optional<SiteMachine> machine_;
  InOrder<Effect> effects_;
};

struct End {
  bool crashed = false;
  std::vector<float> residual = std::vector<float>(kValues);
  std::map<RoundId, Digest> counted;
  bool straggler_lost = false;  // it died before the straggler's update was durable, when the round was over
  std::uint64_t operations = 0;
};

// Dies at operation `at`, if there is one, and again some operations into the next life.
End live(const std::string& codec, std::optional<std::uint64_t> at, store::Unsynced unsynced) {
  store::MemoryFileSystem files;
  Root root;
  End end;
  std::optional<std::uint64_t> next = at;
  for (;;) {
    if (next) files.fail_at(*next, store::Fault::kCrash);
    next.reset();
    try {
      Life(files, root, codec).run();
    } catch (const Crash&) {
      EXPECT_TRUE(files.crashed()) << "an error without a crash";
    }
    if (!files.crashed()) break;  // it may also have died while it ended
    files.restart(unsynced, *at);
    if (!end.crashed) next = *at * 31 % 97;
    end.crashed = true;
  }
  files.clear_fault();
  const auto store = open_store(files);
  end.operations = files.operations();
  EXPECT_TRUE(store->read_residual(kNextRun, 0, end.residual).ok());
  EXPECT_TRUE(store->residual(kRun)->zero);
  end.counted = root.counted;

  // In every coordinate, the counted, remaining, refused and dropped parts add up to what the site made.
  std::vector<double> balance(kValues);
  add(balance, root.sent.at(kDropped).p, -1);
  add(balance, end.residual, -1);
  for (const auto& [round, digest] : root.counted) add(balance, root.sent.at(round).decoded, -1);
  for (std::uint64_t r = 1; r <= kRounds; ++r) {
    if (fate_of(RoundId(r)) == Fate::kRefused) continue;  // made, and rightly dropped
    add(balance, draw(r));
    add(balance, draw(r + 100), -1);
  }
  std::vector<double> straggled(kValues);
  add(straggled, draw(6));
  add(straggled, draw(106), -1);
  const double most = std::ranges::max(balance, {}, [](double x) { return std::fabs(x); });
  if (std::fabs(most) > 1e-4 && end.crashed) {
    for (std::size_t i = 0; i < kValues; ++i) balance[i] -= straggled[i];
    end.straggler_lost = true;
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    if (std::fabs(balance[i]) < 1e-4) continue;
    ADD_FAILURE() << codec << ": the books are off by " << balance[i] << " at value " << i;
    break;
  }
  return end;
}

class CrashTest : public testing::TestWithParam<const char*> {};

TEST_P(CrashTest, AtEveryOperationOfTheDisk) {
  const std::string codec = GetParam();
  const End calm = live(codec, {}, store::Unsynced::kLost);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(calm.counted.size(), 6u);
  std::uint64_t lost = 0;
  // Every operation for one codec; for the others, which differ in no disk operation but their number, every third.
  const std::uint64_t stride = codec.starts_with("topk") ? 1 : 3;
  for (std::uint64_t at = 0;; at += stride) {
    static constexpr store::Unsynced kModes[] = {store::Unsynced::kLost, store::Unsynced::kKept,
                                                 store::Unsynced::kTorn};
    const End end = live(codec, at, kModes[at / stride % 3]);
    ASSERT_FALSE(HasFailure()) << codec << ", crash at operation " << at;
    if (!end.crashed) break;
    EXPECT_EQ(end.counted.size(), 6u) << "no round without it, crash at operation " << at;
    if (end.straggler_lost) {
      ++lost;
      continue;
    }
    // It is as if it had never died: the same bytes were counted, the same residual is left.
    EXPECT_EQ(end.counted, calm.counted) << codec << ", crash at operation " << at;
    EXPECT_EQ(end.residual, calm.residual) << codec << ", crash at operation " << at;
  }
  EXPECT_LT(lost, calm.operations / 5) << "only what was not durable yet";
}

INSTANTIATE_TEST_SUITE_P(Codecs, CrashTest, testing::Values("fp32", "bf16", "int8", "topk:ratio=0.05"));

}  // namespace
}  // namespace fluvial::edge
