// Rounds with several passes (docs/design/phases.md): the vectors that come down, and what is made of them.
#include "edge/service/service.h"

namespace fluvial::edge {

namespace {

tree::OpenedBy opened_by(const Offer& offer) { return {offer.epoch, offer.attempt, offer.pass_index()}; }

}  // namespace

void EdgeService::apply(const FetchState& effect) {
  is_state_wanted_ = true;
  want_vector(effect.offer, *effect.offer.pass->state, codec_state_);
}

void EdgeService::apply(const FetchMean& effect) {
  is_state_wanted_ = false;
  want_vector(effect.offer, *effect.offer.pass->mean, mean_);
}

void EdgeService::want_vector(const Offer& offer, const round::VectorRef& vector, const std::optional<Vector>& here) {
  if (!here || here->digest != vector.digest) site_.span_begun(offer.run, offer.round, round::SpanKind::kVector);
  vectors_.want(tree::called(vector, offer.base), opened_by(offer));
}

void EdgeService::on_vector(const round::ModelRef& ref, const SharedBytes& bytes) {
  if (site_.stopping) return;
  site_.span_ended(ref.run, round::round_from(ref), round::SpanKind::kVector);
  if (is_state_wanted_) {
    codec_state_ = Vector{ref.digest, bytes};
    carry_out(machine_->state_ready(ref.digest));
  } else {
    mean_ = Vector{ref.digest, bytes};
    carry_out(machine_->mean_ready(ref.digest));
  }
}

void EdgeService::apply(const Encode& effect) {
  const std::optional<round::Pass>& pass = effect.offer.pass;
  SharedBytes state;
  if (pass && pass->state) {
    if (!codec_state_ || codec_state_->digest != pass->state->digest) {  // nobody signed the opening that names another
      const Error why{Code::kFailedPrecondition, "the codec's state changed within the round"};
      return carry_out(machine_->encode_failed(effect.work, why));
    }
    state = codec_state_->bytes;
  }
  maker_.encode(effect, std::move(state));
}

void EdgeService::apply(const EncodePass& effect) {
  FLUVIAL_CHECK(mean_ && mean_->digest == effect.offer.pass->mean->digest, "a pass without its mean");
  maker_.encode_pass(effect, mean_->bytes);
}

}  // namespace fluvial::edge
