// What members say of a round with several passes (docs/design/phases.md).
#include "core/digest/sha256.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/statements.h"
#include "tests/upgrade/session.h"
#include "tests/upgrade/signing.h"

namespace fluvial::upgrade {

void second_pass(Session& session, const BeforePasses& before) {
  const round::VectorRef mean{sha256(as_byte_span("mean")), 64};
  wire::Opening opening = before.opening;
  opening.plan.codec = "powersgd:rank=2";
  opening.late.reset();
  opening.pass = round::Pass{1, 2, 6, mean, round::VectorRef{sha256(as_byte_span("state")), 48}};
  opening.order = std::make_shared<const v1::Signed>(signed_by_coordinator(
      wire::kOpeningKind, wire::opening_body(opening, {SiteId(8), before.contribution.site}, kRecordedHistory)));
  session.parent(wire::to_envelope(opening));
  const round::ModelRef vector{before.base.run, before.base.version, mean.digest, mean.bytes};
  v1::Envelope request;
  *request.mutable_model_request()->mutable_model() = wire::to_proto(vector);
  request.mutable_model_request()->set_part(1);
  session.child(request);
  v1::Envelope comes;
  *comes.mutable_model_begin()->mutable_model() = wire::to_proto(vector);
  *comes.mutable_model_begin()->mutable_schema() =
      wire::to_proto(round::Schema::make({{"vector", round::DType::kF32, {16}}}).value());
  comes.mutable_model_begin()->set_part(1);
  session.parent(comes);
  v1::Envelope chunk;
  chunk.mutable_model_chunk()->set_run(before.base.run.value());
  chunk.mutable_model_chunk()->set_version(before.base.version.value());
  chunk.mutable_model_chunk()->set_part(1);
  session.parent(chunk, "sixteen of bytes");
  v1::Envelope begin = before.update;
  begin.mutable_update_begin()->set_pass(1);
  begin.mutable_update_begin()->set_mean_sha256(wire::digest_to_proto(mean.digest));
  session.child(begin);
  round::Contribution one = before.contribution;
  one.from = {1, mean.digest};
  v1::Envelope partial = before.partial;
  partial.mutable_partial_begin()->set_pass(1);
  *partial.mutable_partial_begin()->mutable_contributors(0) = wire::to_proto(one);
  session.child(partial);
  v1::Envelope receipt;
  receipt.mutable_receipt()->set_run(before.base.run.value());
  receipt.mutable_receipt()->set_round(before.opening.round.value());
  receipt.mutable_receipt()->set_site(before.contribution.site.value());
  receipt.mutable_receipt()->set_pass(1);
  session.parent(receipt);
}

}  // namespace fluvial::upgrade
