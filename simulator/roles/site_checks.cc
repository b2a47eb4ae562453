// A site's reports to the checks.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "edge/update/open.h"
#include "edge/update/resolve.h"
#include "simulator/roles/site.h"

namespace fluvial::simulator {
namespace {

CarriedBounds carried(const store::ResidualBounds& bounds, float late_factor) {
  return {bounds.norm_max, bounds.age_max_rounds, late_factor};
}

// By the opening that it was trained for: its plan is the receiver's, without the keys of late updates.
float late_factor(const edge::Offer& offer) {
  return offer.late ? static_cast<float>(offer.late->factors.back()) / 512 : 1;
}

// Of a submission that was fitted to the plan's bounds the tries before may have left files that the disk would not
// remove. No record names them, and the next start sweeps them.
void keep_newest(std::size_t count, std::vector<std::string>* names) {
  const auto number = [](const std::string& name) { return std::stoull(name.substr(name.rfind('-') + 1)); };
  std::ranges::sort(*names, std::greater(), number);
  names->resize(std::min(count, names->size()));
}

}  // namespace

// The checks compare the store's content with what it must be.
void SiteRole::look() {
  const Disk::Inspection inspection(world().disk(host()));
  cast_.checks().sites().settled(self(), *store_);
}

void SiteRole::model_refused(const round::ModelRef&, const Error&) {
  world().violate("model_chain", "a site was given a model that does not have its digest");
}

// ---- a training, on its way into the store ------------------------------------------------------------------------

void SiteRole::encoding(const edge::Offer& offer) {
  take_in(offer, false, {});
  files_before_ = tensor_files();
}

void SiteRole::folding(const edge::Fold& effect) {
  take_in(effect.offer, effect.lost,
          carried(edge::bounds_of(effect.offer.plan), effect.lost ? 1 : late_factor(effect.offer)));
}

void SiteRole::take_in(const edge::Offer& offer, bool lost, const CarriedBounds& bounds) {
  cast_.checks().rounds().worked_for(self(), offer.run, offer.round, offer.plan);
  const TrainingResult& made = trainers_.last();
  const bool is_warm = offer.pass && offer.pass->state;
  cast_.checks().sites().beginning(self(), offer.run, offer.continues);
  cast_.checks().sites().encoding(self(), offer.run,
                                  {offer.round, made.update, made.integers, made.weight, lost, offer.plan,
                                   is_warm ? std::optional(offer.pass->state->digest) : std::nullopt},
                                  bounds, malice_.is_wicked());
  faults_before_ = world().disk(host()).faults_met();
}

void SiteRole::encoded(const store::PendingInfo& info, double) {
  submission_ = info;
  pass_.reset();
  decided_ = false;
  faults_before_.reset();
  files_.clear();
  std::ranges::set_difference(tensor_files(), files_before_, std::back_inserter(files_));
  keep_newest(info.start.lossless ? 1 : 2, &files_);
  look();
}

void SiteRole::encoding_pass(const edge::Offer&) { files_before_ = tensor_files(); }

void SiteRole::pass_encoded(const store::PendingInfo& info) {
  pass_ = info;
  pass_files_.clear();
  std::ranges::set_difference(tensor_files(), files_before_, std::back_inserter(pass_files_));
  look();
}

void SiteRole::pass_found(const store::PendingInfo& info) {
  pass_ = info;
  pass_files_.clear();
}

void SiteRole::not_encoded(const edge::Offer& offer, const Error& why) {
  note_dropped(offer, why);
  look();
}

void SiteRole::not_folded(const edge::Offer& offer, const Error& why) {
  note_dropped(offer, why);
  look();
}

void SiteRole::note_dropped(const edge::Offer& offer, const Error& why) {
  const std::optional<std::uint64_t> before = std::exchange(faults_before_, std::nullopt);
  if (!before) return;  // nobody asked the store
  const bool disk = store_->fault() || world().disk(host()).faults_met() != *before;
  if (!disk) cast_.checks().sites().not_encoded(self(), offer.run, offer.plan.value_abs_max, why);
}

// ---- the submission -----------------------------------------------------------------------------------------------

void SiteRole::found(const store::PendingInfo& info) {
  submission_ = info;
  pass_.reset();
  decided_ = false;
  files_.clear();
}

void SiteRole::feeding(const store::PendingInfo& info) {
  submission_ = info;
  pass_.reset();
  decided_ = false;
  files_.clear();
}

std::vector<std::string> SiteRole::tensor_files() {
  const Disk::Inspection inspection(world().disk(host()));
  Result<std::vector<std::string>> names = world().disk(host()).files().list("state/tensors");
  return names.ok() ? std::move(*names) : std::vector<std::string>{};
}

// Before the trailer of a submission leaves, everything needed to send it again has been synced. In the database, a
// failed transaction or a log that was taken over may leave bytes that nobody needs: there a power cut decides.
void SiteRole::check_durable() {
  const Disk& disk = world().disk(host());
  const auto violated = [&](const std::string& what) {
    world().violate("write_ahead", cast_.identity(host()).name + " sends a trailer before " + what);
  };
  const store::PendingInfo* const sent = on_its_way();
  if (sent == nullptr) return violated("it says that there is one");
  if (decided_) return;
  if (sent->digest == Digest{}) return violated("all of it is encoded");
  for (const std::string& name : sent->start.from.pass == 0 ? files_ : pass_files_) {
    const std::string path = "state/tensors/" + name;
    if (!disk.is_durable(path)) violated(path + " is synced");
  }
  if (disk.is_durable("state/site.db") && disk.is_durable("state/site.db-wal")) return;
  const std::unique_ptr<store::MemoryFileSystem> left = disk.after_power_cut();
  const Result<std::unique_ptr<store::SiteStore>> store = edge::open_site_store(*left, "state");
  const auto held = !store.ok()                  ? Result<std::optional<store::PendingUpdate>>(store.error())
                    : sent->start.from.pass == 0 ? (*store)->pending(sent->start.run)
                                                 : (*store)->pending_pass(sent->start.run);
  if (!held.ok() || !*held || (*held)->info().digest != sent->digest) violated("its record is synced");
}

// What it is sending, of a submission with several passes.
const store::PendingInfo* SiteRole::on_its_way() const {
  const std::optional<store::PendingInfo>& sent = sends_pass_ > 0 ? pass_ : submission_;
  return sent ? &*sent : nullptr;
}

void SiteRole::resolving(const store::PendingInfo& info, round::Outcome outcome) {
  decided_ = true;
  cast_.checks().sites().in_history(self(), round::current_of(lineage_));  // a clone's may be another
  const bool is_overtaken = cast_.is_cloned(host()) && cast_.scenario().federation.keep_rounds != 0;
  cast_.checks().sites().resolving(self(), info.start.run, info.start.round, info.digest, outcome,
                                   carried(info.start.bounds, info.start.late_factor), is_overtaken);
}

// ---- histories ----------------------------------------------------------------------------------------------------

void SiteRole::history_entering(const round::Lineage& lineage) {
  const store::ResidualBounds bounds = submission_ ? submission_->start.bounds : store::ResidualBounds();
  cast_.checks().sites().entering(self(), round::current_of(lineage), round::Common(lineage_, lineage),
                                  carried(bounds, 1));  // it was not too late for every round
}

void SiteRole::history_entered(const round::Lineage& lineage) {
  lineage_ = lineage;
  cast_.checks().sites().in_history(self(), round::current_of(lineage_));
  look();
}

}  // namespace fluvial::simulator
