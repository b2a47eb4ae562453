#include "core/tree/intake.h"

#include <cmath>
#include <utility>

#include "core/tree/ask.h"
#include "core/wire/mapping.h"
#include "kernels/fixed.h"

namespace fluvial::tree {

struct Intake::Incoming {
  UpdateHead update;    // of an update
  PartialHead partial;  // of a partial
  bool is_update = false;
  bool skipping = false;  // refused: the rest is read and thrown away
  std::uint64_t chunk_count = 0;
  std::uint64_t next_index = 0;
  Terms terms;
  std::optional<store::StagedUpdate> staged;
  Sha256 hash;
  double norm_squared = 0;
};

v1::Envelope receipt(RunId run, RoundId round, SiteId site, std::uint64_t sequence, const Status& status,
                     const std::vector<SiteId>& overlap) {
  v1::Envelope message;
  v1::Receipt& receipt = *message.mutable_receipt();
  receipt.set_run(run.value());
  receipt.set_round(round.value());
  receipt.set_site(site.value());
  receipt.set_sequence(sequence);
  receipt.set_code(wire::status_code_to_proto(status));
  if (!status.ok()) receipt.set_message(status.error().message);
  wire::to_proto(overlap, receipt.mutable_without());
  return message;
}

Intake::Intake(Runtime& runtime, HubOwner& owner, store::StagingBudget& budget, std::string spill_folder, Child child)
    : runtime_(runtime),
      owner_(owner),
      budget_(budget),
      spill_folder_(std::move(spill_folder)),
      child_(std::move(child)) {}
Intake::~Intake() = default;

net::Awaitable<Status> Intake::begin(v1::UpdateBegin begin) {
  if (child_.role != Role::kSite || begin.key().site() != child_.node.value()) {
    co_return Error{Code::kPermissionDenied, "an update in the name of site " + std::to_string(begin.key().site())};
  }
  Result<round::Metrics> metrics = wire::metrics_from_proto(begin.metrics());
  if (!metrics.ok()) co_return metrics.error();
  incoming_ = std::make_unique<Incoming>();  // a submission that was cut off before is forgotten
  Incoming& in = *incoming_;
  in.is_update = true;
  in.update = {RunId(begin.key().run()),
               RoundId(begin.key().round()),
               child_.node,
               Incarnation(begin.key().incarnation()),
               begin.key().submission(),
               begin.weight(),
               Epoch(begin.lease_epoch()),
               std::move(*metrics)};
  Result<Terms> terms = co_await ask(runtime_.strand, [&] { return owner_.admit(in.update); });
  if (!terms.ok()) co_return co_await refuse(terms.error(), terms.error().code == Code::kInvalidArgument);
  in.terms = std::move(*terms);
  in.chunk_count = in.terms.layout.chunk_count();
  const auto mismatch = [&](std::string_view what) {
    return Error{Code::kInvalidArgument,
                 "update of site " + std::to_string(child_.node.value()) + ": " + std::string(what)};
  };
  std::optional<Error> wrong;
  if (begin.codec() != in.terms.codec_name)
    wrong = mismatch("codec '" + wire::printable(begin.codec()) + "', expected " + in.terms.codec_name);
  if (begin.pass() != 0) wrong = mismatch("pass " + std::to_string(begin.pass()) + ", expected 0");
  if (begin.value_count() != in.terms.layout.value_count || begin.chunk_count() != in.chunk_count ||
      begin.integer_count() != in.terms.integer_count) {
    wrong = mismatch("another number of values, chunks or integers than the model has");
  }
  if (begin.base_sha256() != wire::digest_to_proto(in.terms.base)) wrong = mismatch("trained from another model");
  if (begin.probe() != 1.0f) wrong = mismatch("the probe is not 1");
  if (wrong) co_return co_await refuse(*wrong, true);
  const std::uint64_t bytes_max = in.terms.codec->encoded_bytes_max(in.terms.layout.chunk_values) * in.chunk_count;
  in.staged.emplace(budget_, runtime_.files, spill_folder_, bytes_max);
  co_return Status{};
}

net::Awaitable<Status> Intake::begin(v1::PartialBegin begin) {
  if (child_.role != Role::kAggregator) {
    co_return Error{Code::kPermissionDenied, "a site may not send a partial aggregate"};
  }
  incoming_ = std::make_unique<Incoming>();
  Incoming& in = *incoming_;
  auto contributors = wire::from_proto(begin.contributors());
  if (!contributors.ok()) co_return contributors.error();
  auto refusals = wire::from_proto(begin.refusals());
  if (!refusals.ok()) co_return refusals.error();
  auto missing = wire::from_proto(begin.missing());
  if (!missing.ok()) co_return missing.error();
  in.partial = {child_.node,
                RunId(begin.run()),
                RoundId(begin.round()),
                AttemptId(begin.attempt()),
                Epoch(begin.epoch()),
                begin.sequence(),
                {std::move(*contributors), std::move(*refusals), std::move(*missing)}};
  Result<Terms> terms = co_await ask(runtime_.strand, [&] { return owner_.admit(in.partial); });
  if (!terms.ok()) co_return co_await refuse(terms.error(), false);
  in.terms = std::move(*terms);
  in.chunk_count = in.partial.what.contributors.empty() ? 0 : in.terms.layout.chunk_count();
  if (begin.chunk_count() != in.chunk_count || static_cast<int>(begin.scale_bits()) != in.terms.scale_bits) {
    co_return co_await refuse({Code::kInvalidArgument, "a partial of another shape or scale"}, false);
  }
  if (const Status probes = round::check_probe(in.partial.what.contributors, in.terms.scale_bits); !probes.ok()) {
    co_return co_await refuse(probes.error(), false);
  }
  const std::uint64_t bytes_max = kernels::packed_bytes_max(in.terms.layout.chunk_values) * in.chunk_count;
  in.staged.emplace(budget_, runtime_.files, spill_folder_, bytes_max);
  co_return Status{};
}

net::Awaitable<Status> Intake::chunk(std::uint64_t index, Buffer bytes) {
  if (incoming_ == nullptr) co_return Error{Code::kFailedPrecondition, "a chunk without a beginning"};
  Incoming& in = *incoming_;
  if (in.skipping) co_return Status{};
  if (index != in.next_index || index >= in.chunk_count) {
    co_return co_await refuse(
        {Code::kInvalidArgument, "chunk " + std::to_string(index) + ", expected " + std::to_string(in.next_index) +
                                     " of " + std::to_string(in.chunk_count)},
        true);
  }
  Status verified = co_await runtime_.pool.run([this, &in, &bytes] { return verify_chunk(in, bytes.span()); });
  if (verified.ok()) verified = in.staged->append(std::move(bytes));
  if (!verified.ok()) co_return co_await refuse(verified.error(), true);
  ++in.next_index;
  co_return Status{};
}

Status Intake::verify_chunk(Incoming& in, ByteSpan bytes) {
  in.hash.update(bytes);
  const std::size_t index = in.next_index;
  const std::size_t count = in.terms.layout.size(index);
  if (!in.is_update) return kernels::check_packed_chunk(bytes, count);
  const std::uint64_t first = in.terms.layout.first_value(index);
  FLUVIAL_ASSIGN(const kernels::ScreenReport report, in.terms.codec->screen_chunk(bytes, count, first));
  in.norm_squared += report.norm_squared;
  if (static_cast<double>(report.max_abs) <= in.terms.value_abs_max) return {};
  std::vector<float> values(count);
  FLUVIAL_TRY(in.terms.codec->decode_chunk(bytes, values));
  std::size_t i = 0;
  while (i + 1 < count && std::fabs(static_cast<double>(values[i])) <= in.terms.value_abs_max) ++i;
  const std::string where =
      in.terms.schema ? round::value_name(*in.terms.schema, first + i) : "value " + std::to_string(first + i);
  return Error{Code::kDataLoss, where + " is " + std::to_string(values[i]) + ", beyond the plan's value_abs_max of " +
                                    std::to_string(in.terms.value_abs_max)};
}

Status Intake::verify_end(Incoming& in, const std::string& sha256, ByteSpan integers) {
  in.hash.update(integers);
  if (in.next_index != in.chunk_count) {
    return Error{Code::kDataLoss,
                 "ended after " + std::to_string(in.next_index) + " of " + std::to_string(in.chunk_count) + " chunks"};
  }
  const std::size_t expected = (in.is_update || in.chunk_count > 0) ? in.terms.integer_count * sizeof(std::int64_t) : 0;
  if (integers.size() != expected) return Error{Code::kDataLoss, "another number of integers than the model has"};
  if (wire::digest_to_proto(in.hash.finish()) != sha256) return Error{Code::kDataLoss, "the digest does not match"};
  if (in.is_update && in.terms.norm_max > 0 && std::sqrt(in.norm_squared) > in.terms.norm_max) {
    return Error{Code::kDataLoss, "the update's norm is " + std::to_string(std::sqrt(in.norm_squared)) +
                                      ", beyond the plan's update_norm_max of " + std::to_string(in.terms.norm_max)};
  }
  return {};
}

net::Awaitable<Status> Intake::end(std::string sha256, Buffer integers) {
  if (incoming_ == nullptr) co_return Error{Code::kFailedPrecondition, "an end without a beginning"};
  if (incoming_->skipping) {
    incoming_.reset();
    co_return Status{};
  }
  const Status verified = co_await runtime_.pool.run([&] { return verify_end(*incoming_, sha256, integers.span()); });
  if (!verified.ok()) {
    const Status told = co_await refuse(verified.error(), true);
    incoming_.reset();
    co_return told;
  }
  const std::unique_ptr<Incoming> in = std::move(incoming_);
  StagedArrival arrival;
  arrival.child = child_.node;
  for (std::size_t i = 0; i < integers.size() / sizeof(std::int64_t); ++i) {
    arrival.integers.push_back(
        static_cast<std::int64_t>(load_le<std::uint64_t>(integers.data() + i * sizeof(std::int64_t))));
  }
  if (in->chunk_count > 0) arrival.chunks.emplace(std::move(*in->staged));
  if (in->is_update) {
    arrival.site = in->update.site;
    arrival.run = in->update.run;
    arrival.round = in->update.round;
    arrival.codec = in->terms.codec;
    const Result<Digest> digest = wire::digest_from_proto(sha256);
    FLUVIAL_CHECK(digest.ok(), "a digest that matched");
    const Status one = arrival.what.contributors.add(
        {in->update.site, in->update.lease, in->update.weight, *digest, 0, std::move(in->update.metrics)});
    FLUVIAL_CHECK(one.ok(), "an admitted weight");
  } else {
    arrival.sequence = in->partial.sequence;
    arrival.run = in->partial.run;
    arrival.round = in->partial.round;
    arrival.what = std::move(in->partial.what);
  }
  co_return co_await ask(runtime_.strand, [&] {
    owner_.arrived(std::move(arrival));
    return Status{};
  });
}

// Tells the child why; `tell_owner` when the site will not be in because of it.
net::Awaitable<Status> Intake::refuse(Error error, bool tell_owner) {
  Incoming& in = *incoming_;
  in.skipping = true;
  in.staged.reset();
  const Result<std::vector<SiteId>> overlap = co_await ask(runtime_.strand, [&]() -> Result<std::vector<SiteId>> {
    if (in.is_update && tell_owner) owner_.refused(in.update.run, in.update.round, {in.update.site, error});
    if (in.is_update || error.code != Code::kAlreadyExists) return std::vector<SiteId>{};
    return owner_.overlap(in.partial);
  });
  const RunId run = in.is_update ? in.update.run : in.partial.run;
  const RoundId round = in.is_update ? in.update.round : in.partial.round;
  const Code level = error.code;
  const std::string text = error.message;
  child_.session->post({receipt(run, round, in.update.site, in.partial.sequence, std::move(error), *overlap), {}});
  runtime_.log.warn(
      in.is_update ? "update refused" : "partial refused",
      {{"child", child_.name}, {"run", run}, {"round", round}, {"code", code_name(level)}, {"reason", text}});
  co_return Status{};
}

}  // namespace fluvial::tree
