// What the site's machine decides.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/outcome.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "simulator/roles/site.h"

namespace fluvial::simulator {
namespace {

Duration scaled(Duration duration, double factor) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::nano>(duration) * factor);
}

}  // namespace

void SiteRole::carry_out(edge::Effects effects) {
  for (edge::Effect& effect : effects) effects_.push_back(std::move(effect));
  if (carrying_out_) return;
  carrying_out_ = true;
  while (!effects_.empty() && !is_dead()) {
    const edge::Effect effect = std::move(effects_.front());
    effects_.pop_front();
    std::visit([this](const auto& decided) { apply(decided); }, effect);
  }
  carrying_out_ = false;
}

// ---- training and encoding ----------------------------------------------------------------------------------------

void SiteRole::apply(const edge::Train& effect) {
  const edge::Offer& offer = effect.offer;
  FLUVIAL_CHECK(held_ && held_->ref() == offer.base, "to train from a model that is not here");
  const SitesScenario& sites = cast_.scenario().sites;
  const Duration time = scaled(between(rng_, sites.train_min, sites.train_max), cast_.slowness(host_));
  cast_.world().after(host_, time, [this, work = effect.work, round = offer.round, base = held_] {
    if (dies("trained")) return;
    trained_from_ = base;
    if (!cast_.sized()) {
      // Two machines of one identity train different things, and so does one that came back with another weight: a
      // digest does not say the weight.
      const std::uint64_t own = cast_.is_cloned(host_) ? host_.value() : 0;
      const std::uint64_t seed = cast_.world().chance().seed() ^ own ^ (cast_.weight_max(host_) << 24);
      trained_ =
          train(base->schema(), base->bytes(), seed, self(), round, cast_.scenario().workload, cast_.weight_max(host_));
    }
    carry_out(machine_->trained(work));
  });
}

edge::UpdateJob SiteRole::job_of(const edge::Offer& offer) const {
  edge::UpdateJob job{offer.run, offer.round, self(), offer.plan, trained_from_->schema()};
  job.base_digest = trained_from_->ref().digest;
  job.base = trained_from_->bytes();
  job.parts.push_back({trained_->model.span(), trained_->weight});
  job.weight = edge::weight_to_claim(offer, trained_->weight);
  return job;
}

// What this site would have made.
Result<std::shared_ptr<const SiteRole::Submission>> SiteRole::stand_in(const edge::Offer& offer) {
  FLUVIAL_ASSIGN(const std::shared_ptr<const StandIn> made, cast_.stand_ins().of(self(), offer.round));
  Submission submission{made->info, {}, {}, made};
  store::PendingInfo& info = submission.info;
  info.start.run = offer.run;
  info.start.round = offer.round;
  info.start.weight = edge::weight_to_claim(offer, static_cast<std::uint32_t>(cast_.weight_max(host_)));
  info.start.base = offer.base.digest;
  info.incarnation = uplink_->incarnation();
  info.submission = ++submissions_;
  return std::make_shared<const Submission>(std::move(submission));
}

// Before an update of the run is made.
Status SiteRole::begin_run(const edge::Offer& offer) {
  cast_.checks().sites().beginning(self(), offer.run, offer.continues);
  FLUVIAL_TRY(store_->begin_run(offer.run, offer.continues, trained_from_->schema().value_count()));
  look();
  return {};
}

Result<std::shared_ptr<const SiteRole::Submission>> SiteRole::encode(const edge::Offer& offer) {
  if (cast_.sized()) return stand_in(offer);
  FLUVIAL_TRY(begin_run(offer));
  cast_.checks().sites().encoding(self(), offer.run, trained_as(offer), {}, malice_.is_wicked());
  const std::uint64_t faults = cast_.world().disk(host_).faults_met();
  const std::vector<std::string> before = tensor_files();
  Result<store::PendingUpdate> update = edge::encode_update(job_of(offer), *store_, serial_);
  if (!update.ok()) {
    note_dropped(offer, faults, update.error());
    return update.error();
  }
  Submission submission{update->info(), std::move(*update), {}};
  std::ranges::set_difference(tensor_files(), before, std::back_inserter(submission.files));
  return std::make_shared<const Submission>(std::move(submission));
}

Trained SiteRole::trained_as(const edge::Offer& offer) const {
  const std::uint64_t weight = std::min<std::uint64_t>(trained_->weight, offer.weight_max);  // as the round records it
  return {offer.round, trained_->update, trained_->integers, weight};
}

void SiteRole::note_dropped(const edge::Offer& offer, std::uint64_t faults_before, const Error& why) {
  const bool disk = is_dead() || store_->fault() || cast_.world().disk(host_).faults_met() != faults_before;
  if (!disk) cast_.checks().sites().not_encoded(self(), offer.run, offer.plan.value_abs_max, why);
}

std::vector<std::string> SiteRole::tensor_files() {
  const Disk::Inspection inspection(cast_.world().disk(host_));
  Result<std::vector<std::string>> names = cast_.world().disk(host_).files().list("state/tensors");
  return names.ok() ? std::move(*names) : std::vector<std::string>{};
}

// Before the first byte of a submission leaves, all that it takes to send it again has been synced. Of the database a
// failed transaction, or a log that was taken over, may leave bytes that nobody needs: there a power cut decides.
void SiteRole::check_durable(const Submission& submission) {
  if (cast_.sized()) return;
  const Disk& disk = cast_.world().disk(host_);
  const auto violated = [&](const std::string& what) {
    cast_.world().violate("write_ahead", cast_.identity(host_).name + " sends a submission before " + what);
  };
  for (const std::string& name : submission.files) {
    const std::string path = "state/tensors/" + name;
    if (!disk.is_durable(path)) violated(path + " is synced");
  }
  if (disk.is_durable("state/site.db") && disk.is_durable("state/site.db-wal")) return;
  const std::unique_ptr<store::MemoryFileSystem> left = disk.after_power_cut();
  const Result<std::unique_ptr<store::SiteStore>> store = store::SiteStore::open(*left, "state");
  const auto held = store.ok() ? (*store)->pending(submission.info.start.run)
                               : Result<std::optional<store::PendingUpdate>>(store.error());
  if (!held.ok() || !*held || (*held)->info().digest != submission.info.digest) violated("its record is synced");
}

// The checks compare what is in the store with what must be.
void SiteRole::look() {
  if (cast_.sized()) return;
  const Disk::Inspection inspection(cast_.world().disk(host_));
  cast_.checks().sites().settled(self(), *store_);
}

void SiteRole::apply(const edge::Encode& effect) {
  if (dies("encode")) return;
  const edge::Offer& offer = effect.offer;
  Result<std::shared_ptr<const Submission>> made = encode(offer);
  if (is_dead()) return;
  look();
  trained_.reset();
  if (dies("encoded")) return;
  const Duration compute = cast_.world().compute(cast_.time_for_values(cast_.scenario().compute.encode_ns));
  const Duration disk = cast_.world().disk(host_).take_latency();
  cast_.world().after(host_, compute + disk, [this, work = effect.work, made = std::move(made)] {
    if (!made.ok() && store_failed()) return;
    if (!made.ok()) {
      carry_out(machine_->encode_failed(work, made.error()));
    } else {
      pending_ = *made;
      carry_out(machine_->encoded(work, pending_of(pending_->info)));
    }
  });
}

void SiteRole::apply(const edge::Fold& effect) {
  if (dies("fold")) return;
  const edge::Offer& offer = effect.offer;
  if (!cast_.sized() && !effect.run_lost) {
    const store::ResidualBounds bounds = edge::bounds_of(offer.plan);
    const Status begun = begin_run(offer);
    if (is_dead() || (!begun.ok() && store_failed())) return;
    if (begun.ok()) {
      Trained trained = trained_as(offer);
      trained.lost = effect.lost;
      edge::UpdateJob job = job_of(offer);
      job.lost = effect.lost;
      cast_.checks().sites().encoding(self(), offer.run, std::move(trained), {bounds.norm_max, bounds.age_max_rounds},
                                      malice_.is_wicked());
      const std::uint64_t faults = cast_.world().disk(host_).faults_met();
      const Result<store::Carried> folded = edge::fold_update(job, *store_, serial_);
      if (!folded.ok()) note_dropped(offer, faults, folded.error());
      if (is_dead() || (!folded.ok() && store_failed())) return;
    }
    look();
  }
  trained_.reset();
  if (dies("folded")) return;
  cast_.world().after_disk(host_, [this, work = effect.work] { carry_out(machine_->folded(work)); });
}

// ---- the submission -----------------------------------------------------------------------------------------------

void SiteRole::apply(const edge::Send& effect) {
  FLUVIAL_CHECK(pending_, "to send what is not there");
  if (!uplink_->is_up()) return;  // offered again after the next connect
  const Epoch lease = effect.offer.lease;
  const bool same = uploading_ && uploading_->what->info.submission == pending_->info.submission &&
                    uploading_->session == uplink_->session() && uploading_->lease == lease;
  if (same && uploading_->refused) uploading_->again = effect.first_chunk;
  if (same) return;  // it goes on as it is
  if (dies("send")) return;
  check_durable(*pending_);
  upload(lease, effect.first_chunk, malice_.draw());
}

void SiteRole::upload(Epoch lease, std::uint64_t first_chunk, Malice::Trick trick) {
  const store::PendingInfo& info = pending_->info;
  // What says what it sent sends all of it.
  if (first_chunk > info.start.chunk_count || Malice::begins_anew(trick)) first_chunk = 0;
  uploading_ = std::make_unique<Uploading>();
  uploading_->what = pending_;
  uploading_->lease = lease;
  uploading_->session = uplink_->session();
  uploading_->first_chunk = first_chunk;
  uploading_->next_chunk = first_chunk;
  uploading_->trick = trick;
  if (trick != Malice::Trick::kNone && malice_.is_wicked()) cast_.checks().rounds().excuse(self());
  if (trick != Malice::Trick::kNone) cast_.checks().rounds().excuse(info.start.run, info.start.round, self());
  v1::Envelope message = transfer::update_begin(info, self(), lease, first_chunk);
  malice_.apply(trick, message.mutable_update_begin());
  uplink_->post(message);
  pump();
}

// A chunk at a time, with the disk's time between them, so that anything may come between.
void SiteRole::pump() {
  if (!uploading_ || uploading_->session != uplink_->session() || !uplink_->has_room()) return;
  const std::uint64_t generation = ++upload_generation_;
  cast_.world().after_disk(host_, [this, generation] {
    if (!uploading_ || generation != upload_generation_ || uploading_->session != uplink_->session()) return;
    if (dies("chunk")) return;
    if (uploading_->refused || uploading_->next_chunk == uploading_->what->info.start.chunk_count) return send_end();
    send_chunk();
    pump();
  });
}

void SiteRole::send_chunk() {
  const std::uint64_t index = uploading_->next_chunk++;
  const store::PendingInfo& info = uploading_->what->info;
  v1::Envelope message;
  message.mutable_update_chunk()->set_index(index);
  Result<Buffer> chunk = uploading_->what->read_chunk(index);
  if (!chunk.ok()) {
    uploading_.reset();  // sent again when it is asked for
    return;
  }
  if (!malice_.sends(uploading_->trick, index, info.start.chunk_count)) return;
  Buffer bytes = malice_.apply(uploading_->trick, index == uploading_->first_chunk, std::move(*chunk));
  uploading_->hash.update(bytes.span());
  if (uploading_->trick != Malice::Trick::kNone) uploading_->sent.push_back(Buffer::copy_of(bytes.span()));
  uplink_->post(message, Payload::of(std::move(bytes)));
}

void SiteRole::send_end() {
  const std::unique_ptr<Uploading> uploading = std::move(uploading_);
  const store::PendingInfo& info = uploading->what->info;
  v1::Envelope end;
  Payload payload;
  Result<Buffer> trailer = uploading->what->read_trailer();
  if (!trailer.ok()) return;
  Buffer bytes = malice_.apply(uploading->trick, std::move(*trailer));
  uploading->hash.update(bytes.span());
  if (!bytes.empty()) payload = Payload::of(std::move(bytes));
  const Digest digest = malice_.apply(uploading->trick, info.digest, uploading->hash.finish());
  if (digest != info.digest) {  // what of it can be decoded is an update like any other
    std::vector<std::int64_t> sent(payload.bytes.bytes.size() / sizeof(std::int64_t));
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i] =
          static_cast<std::int64_t>(load_le<std::uint64_t>(payload.bytes.bytes.data() + i * sizeof(std::int64_t)));
    }
    std::ignore = cast_.checks().truth().add(info.start.run, info.start.round, self(), digest, info.start,
                                             uploading->sent, std::move(sent));
  }
  end.mutable_update_end()->set_sha256(wire::digest_to_proto(digest));
  uplink_->post(end, std::move(payload));
  if (uploading->again) {
    upload(uploading->lease, *uploading->again, malice_.draw());
  } else if (uploading->trick == Malice::Trick::kContradiction) {
    upload(uploading->lease, 0, Malice::Trick::kTwoContents);
  }
}

void SiteRole::apply(const edge::StopSending&) { uploading_.reset(); }

void SiteRole::apply(const edge::Ask& effect) {
  uplink_->post(transfer::outcome_query(effect.pending.run, effect.pending.round, self(), effect.pending.digest));
}

void SiteRole::apply(const edge::AskRun& effect) { uplink_->post(transfer::run_query(effect.run, self())); }

void SiteRole::apply(const edge::DeclineRound& effect) {
  uplink_->post(wire::to_envelope(round::Decline{effect.run, effect.round, effect.attempt, {self(), effect.error}}));
}

// ---- outcomes -----------------------------------------------------------------------------------------------------

void SiteRole::apply(const edge::Resolve& effect) {
  BackoffSettings settings;
  resolve_backoff_.emplace(settings, Rng(effect.pending.round.value()));
  resolve(effect.pending, effect.outcome);
}

// Only a process that starts anew knows what is on the disk: this one ends, and its supervisor starts it.
bool SiteRole::store_failed() {
  if (cast_.sized() || !store_->fault()) return false;
  cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
  return true;
}

// Nothing goes on before it is on disk: a disk that fails is tried again.
void SiteRole::resolve(const edge::Pending& pending, round::Outcome outcome) {
  if (dies("resolve")) return;
  if (!cast_.sized()) {
    const store::ResidualBounds bounds = pending_->info.start.bounds;
    cast_.checks().sites().in_history(self(), round::current_of(lineage_));  // a clone's may be another
    cast_.checks().sites().resolving(self(), pending.run, pending.round, pending.digest, outcome,
                                     {bounds.norm_max, bounds.age_max_rounds});
    const Result<store::Carried> carried = edge::resolve_pending(*store_, pending.run, pending.round, outcome);
    if (is_dead()) return;
    if (!carried.ok() && store_failed()) return;
    if (!carried.ok()) {
      cast_.world().after(host_, resolve_backoff_->next(), [this, pending, outcome] { resolve(pending, outcome); });
      return;
    }
    look();
  }
  if (dies("resolved")) return;
  cast_.world().after_disk(host_, [this, pending] {
    pending_.reset();
    carry_out(machine_->resolved(pending));
  });
}

}  // namespace fluvial::simulator
