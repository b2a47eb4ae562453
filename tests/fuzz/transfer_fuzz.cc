// A child's updates and partials, in any order: beginnings, chunks, ends, lines that break in between. Compared with
// the fuzzer's own record: a transfer that is handed over is what was sent, whole, within the bounds, and with one
// content for each submission; staging frees what it takes. Where the round takes old updates, what is handed over says
// of which round it is, and an old one is no more than the plan's staleness allows. Input: a codec and whether the
// round takes old updates, then one step after the other (docs: README.md).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "core/base/check.h"
#include "core/store/memory_file_system.h"
#include "core/transfer/head.h"
#include "core/transfer/incoming.h"
#include "core/transfer/round_book.h"
#include "core/wire/mapping.h"
#include "kernels/fixed.h"
#include "tests/fuzz/input.h"

namespace fluvial::transfer {
namespace {

constexpr kernels::ChunkLayout kLayout{40, 16};
constexpr std::size_t kIntegers = 2;
constexpr std::uint8_t kIntegerMost = 127;  // of an I8
constexpr std::uint8_t kOtherProbe = 126;   // as the last step of an update
const round::ProbeBytes kProbe = round::probe_bytes();
constexpr int kScale = 20;
constexpr double kValueMax = 100;
constexpr std::array kCodecs{"fp32", "int8", "topk:ratio=0.25", "sign", "qsgd:encoding=elias"};
constexpr std::uint64_t kBudgetBytes = 200;  // less than an update: some of it goes to the disk
constexpr std::uint8_t kTakesOld = 0x80;     // of the first byte
constexpr std::uint64_t kLateRound = 3;      // the first one that takes old updates, by a plan that allows 1 round
constexpr std::array<std::uint32_t, 3> kFactors{512, 300, 7};

Digest model_digest(std::uint64_t version) {
  Digest digest{};
  digest[0] = std::byte{static_cast<unsigned char>(version)};
  return digest;
}

using Bytes = std::vector<std::byte>;

class Child {
 public:
  explicit Child(std::uint8_t kind)
      : partial_(kind % kTakesOld % (kCodecs.size() + 1) == kCodecs.size()), takes_old_(kind >= kTakesOld) {
    kind %= kTakesOld;
    terms_.layout = kLayout;
    terms_.integer_count = kIntegers;
    terms_.schema = std::make_shared<const round::Schema>(*round::Schema::make(
        {{"w", round::DType::kF32, {kLayout.value_count}}, {"n", round::DType::kI8, {kIntegers}}}));
    terms_.base_integers = std::make_shared<const std::vector<std::int64_t>>(kIntegers, 0);
    terms_.codec_name = kCodecs[kind % kCodecs.size()];
    terms_.codec = *kernels::make_codec(*kernels::parse_codec(terms_.codec_name));
    terms_.value_abs_max = kValueMax;
    terms_.scale_bits = kScale;
    FLUVIAL_CHECK(files_.make_folder("/spill").ok(), "a folder in memory");
    open(takes_old_ ? kLateRound : 1);
  }
  ~Child() {
    incoming_.reset();
    book_.close();
    FLUVIAL_CHECK(budget_.bytes_used() == 0, "what staging took was not given back");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void step(fuzz::Input& steps) {
    switch (steps.byte() % 8) {
      case 0: return partial_ ? begin(partial_head(steps)) : begin(update_head(steps));
      case 1: return chunk(steps.byte(), steps.take(steps.byte()));
      case 2:
      case 3: return chunk(expected_index(), well_formed(steps.byte()));
      case 4: return end(steps.byte());
      case 5: return cut();
      case 6: return open((takes_old_ ? kLateRound : 1) + steps.byte() % 2u);
      default: return book_.close();
    }
  }

 private:
  NodeId child() const { return NodeId(7); }

  void open(std::uint64_t round) {
    book_.open(RunId(1), RoundId(round));
    terms_.base_version = ModelVersion(round - 1);
    if (!takes_old_) return;
    terms_.base = model_digest(round - 1);
    round::Lateness late{1, {kFactors.begin(), kFactors.end()}, {}};
    late.earlier = {{RunId(1), ModelVersion(round - 2), model_digest(round - 2), 0}};
    terms_.late = std::make_shared<const round::Lateness>(std::move(late));
  }

  static v1::Digest digest_of(int choice) { return static_cast<v1::Digest>(choice % 3); }  // 2: unknown

  std::optional<UpdateHead> update_head(fuzz::Input& steps) {
    v1::UpdateBegin begin;
    begin.mutable_key()->set_run(1);
    begin.mutable_key()->set_round(1 + steps.byte() % 2u);
    begin.mutable_key()->set_site(7);
    begin.mutable_key()->set_incarnation(steps.byte() % 3u);
    begin.mutable_key()->set_submission(steps.byte() % 3u);
    begin.set_weight(1 + steps.byte());
    begin.set_codec(terms_.codec_name);
    begin.set_value_count(kLayout.value_count);
    begin.set_chunk_count(kLayout.chunk_count());
    begin.set_integer_count(kIntegers);
    begin.set_base_sha256(wire::digest_to_proto(terms_.base));
    begin.set_lease_epoch(1);
    if (takes_old_) {
      begin.mutable_key()->set_round(steps.byte() % 6u);
      begin.set_into(steps.byte() % 6u);
      begin.set_base_sha256(wire::digest_to_proto(model_digest(steps.byte() % 5u)));
    }
    const std::uint8_t where = steps.byte();
    begin.set_first_chunk(where % 4u);
    begin.set_digest(digest_of(where / 4));
    if (const std::uint8_t spoil = steps.byte(); spoil > 250) {
      const ByteSpan bytes = steps.take(spoil - 250u);  // repeated fields replace earlier ones
      if (!begin.MergeFromString({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) return {};  // NOLINT
    }
    const Result<UpdateHead> head = head_from_proto(begin, child(), Role::kSite);
    if (!head.ok()) return {};
    own_round_ = begin.key().round();  // of the head that was read last: it is begun, or nothing is
    own_base_ = head->base;
    return *head;
  }

  std::optional<PartialHead> partial_head(fuzz::Input& steps) {
    v1::PartialBegin begin;
    begin.set_run(1);
    begin.set_round((takes_old_ ? kLateRound : 1) + steps.byte() % 2u);
    begin.set_attempt(1);
    begin.set_epoch(1);
    begin.set_incarnation(steps.byte() % 3u);
    begin.set_sequence(steps.byte() % 3u);
    begin.set_scale_bits(kScale);
    const std::uint8_t where = steps.byte();
    begin.set_first_chunk(where % 4u);
    begin.set_digest(digest_of(where / 4));
    const std::uint8_t named = steps.byte() % 4;
    for (std::uint8_t i = 0; i < named; ++i) {
      v1::Contributor& one = *begin.add_contributors();
      one.set_site(20u + steps.byte() % 4u);
      one.set_lease_epoch(1);
      one.set_weight(1 + steps.byte() % 4u);
      one.set_probe(static_cast<std::int64_t>(one.weight()) << kScale);
      if (takes_old_) {
        one.set_base_version(steps.byte() % 5u);
        one.set_admitted_version(steps.byte() % 5u);
        if (const std::uint32_t factor = kFactors.at(steps.byte() % kFactors.size()); factor != 512) {
          one.set_probe(static_cast<std::int64_t>(one.weight() * factor) << (kScale - 9));
        }
      }
      Digest digest{};
      digest[0] = std::byte{static_cast<unsigned char>(steps.byte() % 2)};
      one.set_sha256(wire::digest_to_proto(digest));
      one.set_incarnation(steps.byte() % 2u);
      one.set_submission(1);
    }
    begin.set_chunk_count(named > 0 ? kLayout.chunk_count() : 0);
    const Result<PartialHead> head = head_from_proto(begin, child(), Role::kAggregator);
    if (!head.ok()) return {};
    return *head;
  }

  // As a parent does: continues the transfer that the book kept, if the head does, else begins with the first chunk.
  template <typename Head>
  void begin(const std::optional<Head>& head) {
    incoming_.reset();
    sent_ = {};
    if (!head) return;
    const bool admitted = admit(*head).ok();
    const std::optional<wire::Received> kept = book_.received(child());
    std::optional<Incoming> resumed = admitted ? book_.take(*head) : std::nullopt;
    FLUVIAL_CHECK(!resumed || (kept && kept->chunks == head->first_chunk), "it goes on from where it stopped");
    if (resumed) {
      if (!resumed->resume(*head, terms_).ok()) return;
      sent_ = kept_;
    } else {
      Result<Incoming> anew = Incoming::begin(*head, terms_, staging_);
      FLUVIAL_CHECK(head->first_chunk == 0 || !anew.ok(), "the chunks before the first are nowhere");
      if (!admitted || !anew.ok()) return;
      resumed.emplace(std::move(*anew));
    }
    incoming_.emplace(std::move(*resumed));
    admitted_on_ = terms_.base_version;
    weight_ = weight_of(*head);
    contributors_ = contributors_of(*head);
    brings_probe_ = brings_probe(*head);
    digest_kind_ = head->digest_kind;
  }
  Status admit(const UpdateHead& head) const { return book_.admit(head); }
  Status admit(const PartialHead& head) const {
    return book_.conflicts(head).empty() ? Status{} : Error{Code::kConflict, "one of them"};
  }
  static std::uint64_t weight_of(const UpdateHead& head) { return head.weight; }
  static std::uint64_t weight_of(const PartialHead& head) { return head.what.contributors.total_weight(); }
  static bool brings_probe(const UpdateHead& head) { return head.has_probe(); }
  static bool brings_probe(const PartialHead&) { return false; }
  static std::size_t contributors_of(const UpdateHead&) { return 1; }
  static std::size_t contributors_of(const PartialHead& head) { return head.what.contributors.size(); }

  std::uint64_t expected_index() const { return incoming_ ? incoming_->received().chunks : 0; }

  Buffer well_formed(std::uint8_t pattern) const {
    const std::size_t count = kLayout.size(std::min<std::uint64_t>(expected_index(), kLayout.chunk_count() - 1));
    if (partial_) {
      std::vector<std::int64_t> sums(count, std::int64_t{pattern} << (pattern % 48));
      Buffer bytes(kernels::packed_bytes_max(count));
      const std::size_t size = kernels::pack_chunk(sums, bytes.span());
      return Buffer::copy_of(ByteSpan(bytes.span()).first(size));
    }
    std::vector<float> values(count, static_cast<float>(pattern) - 120.0f);
    return Buffer::copy_of(std::as_bytes(std::span(values)));  // for fp32; other codecs read them in their own way
  }

  void chunk(std::uint64_t index, const Buffer& bytes) { chunk(index, bytes.span()); }
  void chunk(std::uint64_t index, ByteSpan bytes) {
    if (!incoming_) return;
    const std::uint64_t expected = expected_index();
    const Status taken = incoming_->chunk(index, Buffer::copy_of(bytes));
    FLUVIAL_CHECK(!taken.ok() || (index == expected && index < kLayout.chunk_count()), "chunks come in order");
    FLUVIAL_CHECK(budget_.bytes_used() <= kBudgetBytes, "more than the budget");
    if (!taken.ok()) return incoming_.reset();
    sent_.emplace_back(bytes.begin(), bytes.end());
  }

  void end(std::uint8_t how) {
    if (!incoming_) return;
    const bool whole = expected_index() == (contributors_ > 0 ? kLayout.chunk_count() : 0);
    std::vector<std::int64_t> integers(contributors_ > 0 ? kIntegers : 0, how);
    Bytes tail(std::as_bytes(std::span(integers)).begin(), std::as_bytes(std::span(integers)).end());
    if (brings_probe_) tail.insert(tail.end(), kProbe.begin(), kProbe.end());
    if (brings_probe_ && how == kOtherProbe) tail.back() ^= std::byte{1};
    SubmissionDigest of_sent(digest_kind_, sent_.size());
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      of_sent.side_by_side(i, sent_[i]);
      of_sent.in_order(sent_[i]);
    }
    Digest digest = of_sent.finish(tail);
    if (how == 255) digest[0] ^= std::byte{1};
    Result<StagedArrival> arrival = incoming_->end(wire::digest_to_proto(digest), tail);
    incoming_.reset();
    const bool within = (contributors_ == 0 || how <= kIntegerMost) && !(brings_probe_ && how == kOtherProbe);
    FLUVIAL_CHECK(
        arrival.ok() == (whole && within && how != 255),
        "whole, with its digest, its probe and integers that a round can bring, and nothing else, is handed over");
    if (!arrival.ok()) return;
    check_content(*arrival);
    for (const auto& [site, entry] : arrival->what.contributors.entries()) check_age(entry);
    remember(*arrival);
  }

  // Of which round it is: that of its key, whose model it names; and never older than may be.
  void check_age(const round::Contribution& entry) const {
    if (!takes_old_) {
      FLUVIAL_CHECK(entry.base == entry.admitted, "an old update, and the round takes none");
      return;
    }
    FLUVIAL_CHECK(entry.admitted == admitted_on_, "it was admitted on the round's own model");
    const std::uint64_t age = admitted_on_.value() - entry.base.value();
    FLUVIAL_CHECK(age <= 1, "it is older than the plan allows, or younger than the round");
    if (partial_) {
      const std::uint32_t factor = kFactors.at(age);
      const auto whole = static_cast<std::int64_t>(entry.weight * factor);
      FLUVIAL_CHECK(entry.probe == whole << (kScale - 9), "its probe is what its age makes of its weight");
    } else {
      FLUVIAL_CHECK(entry.base.value() + 1 == own_round_ && own_base_ == model_digest(entry.base.value()),
                    "it is of the round in its key, and of that round's model");
    }
  }

  void check_content(const StagedArrival& arrival) const {
    FLUVIAL_CHECK(
        arrival.what.contributors.size() == contributors_ && arrival.what.contributors.total_weight() == weight_,
        "its contributors are those of its head");
    if (!arrival.chunks) return;
    Buffer scratch;
    for (std::uint64_t i = 0; i < kLayout.chunk_count(); ++i) {
      const Result<ByteSpan> bytes = arrival.chunks->read(i, scratch);
      FLUVIAL_CHECK(bytes.ok() && std::ranges::equal(*bytes, sent_.at(i)), "what is staged is what was sent");
      check_values(*bytes, kLayout.size(i));
    }
  }
  void check_values(ByteSpan bytes, std::size_t count) const {
    std::vector<std::int64_t> sums(count);
    std::vector<float> values(count);
    if (partial_) {
      FLUVIAL_CHECK(kernels::merge_chunk(bytes, sums).ok(), "a partial that was verified adds up");
      const double most = std::ldexp(kValueMax * static_cast<double>(weight_), kScale);
      FLUVIAL_CHECK(std::ranges::all_of(sums,
                                        [&](std::int64_t sum) {
                                          return std::fabs(static_cast<double>(sum)) <=
                                                 most * (1 + 0x1p-40) + static_cast<double>(contributors_);
                                        }),
                    "a partial holds no more than its contributors can give");
      return;
    }
    FLUVIAL_CHECK(terms_.codec->decode_chunk(bytes, values).ok(), "an update that was verified decodes");
    FLUVIAL_CHECK(std::ranges::all_of(values, [](float value) { return std::fabs(value) <= kValueMax; }),
                  "an update that was verified is finite and within the plan's bound");
  }

  // The newest submission of each site in the open round has one digest.
  void remember(const StagedArrival& arrival) {
    const auto& entries = arrival.what.contributors.entries();
    const auto conflict_of = [&](const round::Contribution& one) {
      return book_.compare(arrival.run, arrival.round, one);
    };
    for (const auto& [site, entry] : entries) {
      if (conflict_of(entry)) return;
    }
    book_.complete(arrival);
    for (const auto& [site, entry] : entries) {
      FLUVIAL_CHECK(!conflict_of(entry), "what was taken agrees with the book");
      round::Contribution other = entry;
      other.digest[31] ^= std::byte{1};
      const std::optional<round::Refusal> conflict = conflict_of(other);
      FLUVIAL_CHECK(!conflict || (conflict->error.code == Code::kConflict && conflict->proof.size() == 2 &&
                                  conflict->proof[0].digest != conflict->proof[1].digest),
                    "another content is a conflict, shown by both");
    }
  }

  void cut() {
    if (!incoming_) return;
    book_.keep(child(), std::move(*incoming_));
    incoming_.reset();
    kept_ = std::move(sent_);
    sent_ = {};
  }

  const bool partial_;
  const bool takes_old_;
  Terms terms_;
  store::MemoryFileSystem files_;
  store::StagingBudget budget_{kBudgetBytes};
  Staging staging_{&budget_, &files_, "/spill"};
  RoundBook book_;
  std::optional<Incoming> incoming_;
  std::vector<Bytes> sent_;  // chunks of the transfer under way
  std::vector<Bytes> kept_;  // of the transfer that the book keeps, if any
  std::uint64_t weight_ = 0;
  std::size_t contributors_ = 0;
  bool brings_probe_ = false;
  DigestKind digest_kind_ = DigestKind::kStream;
  std::uint64_t own_round_ = 0;
  ModelVersion admitted_on_;
  Digest own_base_{};
};

}  // namespace
}  // namespace fluvial::transfer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::Input steps(std::as_bytes(std::span(data, size)));
  fluvial::transfer::Child child(steps.byte());
  while (!steps.done()) child.step(steps);
  return 0;
}
