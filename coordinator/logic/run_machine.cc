#include "coordinator/logic/run_machine.h"

#include <algorithm>
#include <utility>

#include "coordinator/logic/pause_cause.h"
#include "core/aggregate/scale.h"
#include "core/round/sampling.h"

namespace fluvial::coordinator {

RunMachine::RunMachine(RunStart start)
    : run_(start.run),
      plan_(std::move(start.plan)),
      model_(start.model),
      last_committed_(start.last_committed),
      epoch_(start.epoch),
      status_(start.status),
      reason_(std::move(start.reason)),
      pass_values_(std::move(start.pass_values)),
      codec_state_(start.codec_state),
      earlier_(std::move(start.earlier)),
      marks_(std::move(start.marks)),
      rates_(std::move(start.rates)) {
  attempt_.scale_bits = start.scale_bits;
  for (const SiteId site : start.late) missed_.emplace(site, last_committed_);
  if (start.open) {
    FLUVIAL_CHECK(start.open->round == last_committed_.next(), "the open attempt follows the last commit");
    attempt_ = std::move(*start.open);
    for (round::Participant& one : attempt_.participants) one.share = share_of(one.site);  // the record has none
    round_begun_ = true;
    note_on_record();
  }
  if (status_ != RunStatus::kRunning) phase_ = Phase::kHalted;
}

Effects RunMachine::begin(TimePoint now) { return run_steps(now); }

// `lease_of`: 0 when it is not known.
template <typename LeaseOf>
Effects RunMachine::move_leases(const LeaseOf& lease_of) {
  Effects out;
  if (!round_begun_) return out;
  TellMoved moved;
  for (round::Participant& participant : attempt_.participants) {
    const Epoch lease = lease_of(participant.site);
    if (lease <= participant.lease) continue;
    participant.lease = lease;
    gather_.move_lease(participant.site, participant.lease);
    moved.sites.push_back(participant.site);
  }
  if (!moved.sites.empty() && phase_ == Phase::kOpen) out.push_back(std::move(moved));
  return out;
}

Effects RunMachine::sites_changed(std::map<SiteId, SiteInfo> connected, TimePoint now) {
  connected_ = std::move(connected);
  note_leads();
  Effects out = move_leases([this](SiteId site) {
    const auto found = connected_.find(site);
    return found == connected_.end() ? Epoch(0) : found->second.lease;
  });
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

Effects RunMachine::leases_changed(const std::map<SiteId, Epoch>& leases) {
  return move_leases([&](SiteId site) {
    const auto found = leases.find(site);
    return found == leases.end() ? Epoch(0) : found->second;
  });
}

bool RunMachine::is_step_under_way() const {
  return status_step_ || phase_ == Phase::kRecording || phase_ == Phase::kReducing || phase_ == Phase::kFinalising ||
         phase_ == Phase::kCommitting;
}

bool RunMachine::awaits(Step step) const { return is_step_under_way() && step == step_; }

Effects RunMachine::run_steps(TimePoint now) {
  Effects out;
  if (is_step_under_way()) return out;
  if (phase_ == Phase::kIdle && last_committed_.value() >= plan_.rounds) {
    halt(RunStatus::kDone, "", out);
    return out;
  }
  while (!wishes_.empty() && !status_step_) consider_wish(out);
  if (status_step_) return out;
  if (phase_ == Phase::kIdle) try_open(out);
  if (phase_ == Phase::kOpen && spoilt_) {
    give_up_sum(now, out);
  } else if (phase_ == Phase::kOpen) {
    try_close(now, out);
  }
  if (phase_ == Phase::kFinalised) {
    phase_ = Phase::kCommitting;
    out.push_back(RecordCommit{next_step(), commit_});
  }
  return out;
}

void RunMachine::try_open(Effects& out) {
  if (pause_wanted_) {
    phase_ = Phase::kHalted;
    drop_waiting("the run pauses", out);
    return become(RunStatus::kPaused, *std::exchange(pause_wanted_, std::nullopt), out);
  }
  if (round_begun_) return try_again(out);

  const std::map<SiteId, round::Lot> sites = lots();
  const RoundId round = last_committed_.next();
  const std::vector<SiteId> chosen = round::sample_sites(sites, plan_.participants_fraction, plan_.seed, round);
  if (sites.size() < plan_.participants_min || chosen.size() < plan_.quorum || chosen.empty()) {
    const std::size_t heavy = connected_.size() - sites.size();
    reason_ = std::string(kSitesPhrase) + std::to_string(sites.size()) + " connected" +
              (heavy == 0 ? "" : " (without " + std::to_string(heavy) + " of a maximum weight of 2^20 or more)") +
              ", round " + std::to_string(round.value()) + " needs " + std::to_string(plan_.participants_min) +
              " and a quorum of " + std::to_string(plan_.quorum) + " among those sampled";
    return;
  }
  const int scale_before = std::exchange(attempt_, {run_, round, AttemptId(0), epoch_, {}, 0, model_}).scale_bits;
  std::uint64_t weight_sum = 0;
  for (const round::Participant& one : participants_of(chosen)) {
    attempt_.participants.push_back(one);
    weight_sum += one.weight_max;
  }
  const Result<int> scale = scale_for(weight_sum, scale_before);
  if (!scale.ok()) return halt(RunStatus::kPaused, std::string(kNoRoomPhrase) + scale.error().message, out);
  attempt_.scale_bits = *scale;
  round_begun_ = true;
  expired_attempts_ = 0;
  next_attempt(out, /*sum_anew=*/true);
}

// The open round's next attempt. After a restart it is not yet known which sites are missing, and the sum is empty.
void RunMachine::try_again(Effects& out) {
  const bool is_known = gather_.participant_count() > 0 || !passes_.empty();
  const bool must_leave =
      std::ranges::any_of(shut_out_, [this](const auto& entry) { return gather_.is_counted(entry.first); });
  if (is_known) {
    call_substitutes();
  } else if (const Status room = make_room(); !room.ok()) {
    return halt(RunStatus::kPaused, std::string(kNoRoomPhrase) + room.error().message, out);
  }
  next_attempt(out, /*sum_anew=*/!is_known || must_leave || !passes_.empty());  // an attempt begins with its first pass
}

// An earlier version may have recorded a scale that has no room for a probe. Nothing is summed in this term yet, and
// the sites still have what they sent: so the scale may be lowered, once, before the round opens again.
Status RunMachine::make_room() {
  std::uint64_t weight_sum = 0;
  for (const round::Participant& participant : attempt_.participants) weight_sum += participant.weight_max;
  if (aggregate::has_room(plan_.value_abs_max, attempt_.scale_bits, weight_sum)) return {};
  FLUVIAL_ASSIGN(attempt_.scale_bits, aggregate::scale_for(plan_, weight_sum));
  return {};
}

// Sites that did not come in the last attempt may never come. For each of them another connected site takes part as
// well, as far as the sum has room for it at its scale; an awaited site that comes after all still counts.
void RunMachine::call_substitutes() {
  std::uint64_t weight_sum = 0;
  std::set<SiteId> leave = absent();
  for (const auto& [site, refusal] : shut_out_) leave.insert(site);
  std::map<SiteId, SiteInfo> others = connected_;
  for (const round::Participant& participant : attempt_.participants) {
    weight_sum += participant.weight_max;
    others.erase(participant.site);
  }
  const auto has_room = [&](const SiteInfo& info) {
    return aggregate::has_room(plan_.value_abs_max, attempt_.scale_bits, weight_sum + info.weight_max) &&
           !is_too_heavy(info);
  };
  std::map<SiteId, round::Lot> lots;  // without sites that are too heavy: they must not take a lighter site's place
  for (const auto& [site, info] : others) {
    if (has_room(info)) lots[site] = {pace_.sample_weight(site), info.name_key};
  }
  for (const SiteId site : round::draw_sites(lots, leave.size(), plan_.seed, attempt_.round)) {
    const SiteInfo& info = others.at(site);
    if (!has_room(info)) continue;  // in addition to those before it
    weight_sum += info.weight_max;
    attempt_.participants.push_back(participant_of(site, info));
  }
  std::ranges::sort(attempt_.participants, {}, &round::Participant::site);
}

void RunMachine::next_attempt(Effects& out, bool sum_anew) {
  attempt_.attempt = attempt_.attempt.next();
  attempt_.epoch = epoch_;
  shut_out_.clear();
  begin_passes();
  if (sum_anew) {
    begin_gather();
    taking_.clear();
  } else {
    gather_.next_attempt();
    gather_.update(attempt_.participants, {});  // leases are the same: this only adds the new sites
  }
  gather_.mark_missing(attendance_.unexpected(attempt_.participants));
  reason_.clear();
  phase_ = Phase::kRecording;
  const bool goes_over = std::exchange(goes_over_, false);
  if (!goes_over) drop_waiting("the sum begins anew", out);
  out.push_back(RecordAttempt{next_step(), attempt_, sum_anew, goes_over});
}

Effects RunMachine::attempt_recorded(Step step, TimePoint now) {
  if (phase_ != Phase::kRecording || !awaits(step)) return {};
  phase_ = Phase::kOpen;
  opened_at_ = now;
  note_on_record();
  // Only a first attempt begins with the training; in later ones the history was wrong once already.
  const bool first = attempt_.attempt == AttemptId(1) && !round::is_async(plan_);
  soft_ = now + (first ? round::soft_deadline(plan_, expected(), pace_) : Duration(plan_.soft_deadline));
  hard_ = now + plan_.hard_deadline;
  timer_ = soft_;
  Effects out{OpenRound{}, SetTimer{soft_}};
  offer_waiting(out);
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

Status RunMachine::admit(SiteId site, Epoch lease, std::uint64_t weight) const {
  if (is_between_rounds() || (phase_ != Phase::kOpen && phase_ != Phase::kRecording && !is_closing())) {
    return Error{Code::kStale, "no round is open"};
  }
  for (const auto& [arrival, what] : waiting_) {
    if (what.contributors.contains(site)) return Error{Code::kAlreadyExists, "it is here for the next round"};
  }
  return gather_.admit(site, lease, weight);
}

Status RunMachine::admit(RoundId round, AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const {
  const bool goes_over = round < attempt_.round && takes(round, /*is_update=*/false);
  const bool is_between = round::is_async(plan_) && (is_closing() || (goes_over && phase_ == Phase::kRecording));
  if (phase_ != Phase::kOpen && !is_between) {
    return Error{Code::kStale, "no round is open"};
  }
  if (goes_over) FLUVIAL_TRY(check_goes_over({partial, {}, {}}));
  if (is_waiting(partial)) return Error{Code::kUnavailable, "a part of it is here for the next window"};
  FLUVIAL_TRY(check_shares(partial));
  if ((attempt != attempt_.attempt && !round::is_async(plan_)) || epoch != attempt_.epoch) {
    return Error{Code::kStale, "attempt " + std::to_string(attempt.value()) + " of epoch " +
                                   std::to_string(epoch.value()) + ", expected " +
                                   std::to_string(attempt_.attempt.value()) + " of " +
                                   std::to_string(attempt_.epoch.value())};
  }
  return gather_.admit(partial);
}

Effects RunMachine::arrived(ArrivalId arrival, const round::Arrival& what) {
  Effects out;
  if (is_closing() && may_wait(what)) {
    if (is_waiting(what.contributors)) {
      out.push_back(Drop{arrival, {Code::kStale, "the same is here for the next round"}});
    } else {
      waiting_.emplace(arrival, what);
    }
    return out;
  }
  if (phase_ != Phase::kOpen && phase_ != Phase::kRecording) {
    out.push_back(Drop{arrival, {Code::kStale, "the round is closed"}});
    return out;
  }
  take_in(arrival, what, {}, out);
  return out;
}

void RunMachine::take_in(ArrivalId arrival, const round::Arrival& what, std::optional<ModelVersion> admitted_on,
                         Effects& out) {
  Status admitted = gather_.admit(what.contributors);
  if (admitted.ok()) admitted = check_goes_over(what);
  if (admitted.ok()) admitted = check_shares(what.contributors);
  if (!admitted.ok()) {
    out.push_back(Drop{arrival, admitted.error()});
    return;
  }
  for (const round::Refusal& refusal : what.refusals) refuse(refusal);
  gather_.mark_missing(what.missing);
  gather_.begin_take(what.contributors);
  taking_.emplace(arrival, what.contributors);
  out.push_back(Take{arrival, admitted_on});
}

Effects RunMachine::taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now) {
  Effects out;
  if (taking_.erase(arrival) == 0) return out;  // the round was given up meanwhile
  gather_.finish_take(with_probes);
  out.push_back(Release{arrival});
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

Effects RunMachine::take_failed(ArrivalId arrival, const Error& error, TimePoint now) {
  Effects out;
  const auto found = taking_.find(arrival);
  if (found == taking_.end()) return out;
  taking_.erase(found);
  spoilt_ = error;
  out.push_back(Drop{arrival, error});
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

void RunMachine::give_up_sum(TimePoint now, Effects& out) {
  note_pace(now);
  const std::string why = std::exchange(spoilt_, std::nullopt)->message;
  gather_ = {};
  taking_.clear();
  if (++expired_attempts_ < plan_.attempts_max) return try_again(out);
  halt(RunStatus::kPaused, "round " + std::to_string(attempt_.round.value()) + ": " + std::string(kSumPhrase) + why,
       out);
}

Effects RunMachine::refused(const round::Refusal& refusal, TimePoint now) {
  refuse(refusal);
  return run_steps(now);
}

Effects RunMachine::declined(AttemptId attempt, const round::Refusal& refusal, TimePoint now) {
  if (attempt != AttemptId(0) && attempt != attempt_.attempt) return {};
  return refused(refusal, now);
}

Effects RunMachine::shut_out(const round::Refusal& refusal, TimePoint now) {
  const bool is_of_attempt = gather_.is_participant(refusal.site) || missed_pass(refusal.site);
  if (!is_of_attempt) return {};
  shut_out_.try_emplace(refusal.site, refusal);
  return refused(refusal, now);
}

Effects RunMachine::tick(TimePoint now) { return run_steps(now); }

bool RunMachine::has_quorum() const {
  return !gather_.held().empty() && gather_.held().size() >= plan_.quorum &&
         gather_.held().total_weight() >= plan_.weight_min;
}

// In a later pass nobody trains. Windows are noted when they close (try_close()).
void RunMachine::note_pace(TimePoint now) {
  if (attempt_.attempt != AttemptId(1) || !passes_.empty() || round::is_async(plan_)) return;
  // Whoever has no worker, or says nothing, is not slow.
  std::vector<round::Participant> rated = expected();
  std::erase_if(
      rated, [this](const auto& one) { return attendance_.lacks_workers(one.site) && !gather_.is_counted(one.site); });
  pace_.closed(rated, gather_.held(), gather_.refusals(), now - opened_at_);
}

// Windows wait for nobody.
void RunMachine::note_attendance() {
  if (!passes_.empty() || round::is_async(plan_)) return;
  attendance_.closed(gather_);
  for (const SiteId site : attendance_.unexpected(attempt_.participants)) pace_.forget(site);
}

std::vector<round::Participant> RunMachine::expected() const {
  std::vector<round::Participant> awaited = attempt_.participants;
  std::erase_if(awaited, [this](const auto& one) {
    return attendance_.of(one.site) != round::Expected::kYes && !gather_.is_counted(one.site);
  });
  return awaited;
}

void RunMachine::heard(SiteId site) {
  if (attendance_.heard(site)) gather_.await(site);
}

void RunMachine::has_workers(SiteId site, bool any) {
  if (attendance_.has_workers(site, any)) gather_.await(site);
}

void RunMachine::try_close(TimePoint now, Effects& out) {
  if (!gather_.quiet()) return;  // taken() comes back here
  if (has_quorum() && (gather_.settled() || now >= soft_ || has_goal())) {
    note_pace(now);
    note_attendance();
    if (passes_.size() + 1 < pass_values_.size()) return close_pass(now, out);
    phase_ = Phase::kFinalising;
    commit_ = {run_, attempt_.round, attempt_.attempt, gather_.held(), gather_.refusals(), {}, {}, late_is_next(plan_)};
    if (!round::is_async(plan_)) commit_.late = gather_.late();  // nobody is late for a window
    complete_commit();
    const round::ContributorSet& counted = commit_.contributors;
    if (round::is_async(plan_)) pace_.window_closed(counted, now);
    out.push_back(
        Finalise{next_step(), commit_, round::is_fair(plan_) ? rates_.divisor(counted) : round::by_weights(counted)});
    return;
  }
  const TimePoint end = ends_at(now);
  if (now < end) {
    const TimePoint next = now < soft_ ? std::min(soft_, end) : end;
    if (std::exchange(timer_, next) != next) out.push_back(SetTimer{next});
    return;
  }
  lost_early_ = now < hard_;
  note_pace(now);
  note_attendance();
  // A window waits for as long as its sites train, and asks again who may have lost what it sent.
  if (!round::is_async(plan_) && ++expired_attempts_ >= plan_.attempts_max) return halt_without_quorum(out);
  note_refused(gather_.refusals());
  try_again(out);
}

// When the attempt ends without a quorum. Where all who are not in were refused, or decline, the quorum will not come
// in this attempt. The next one still leaves time to mend what was in the way: attempts are counted.
TimePoint RunMachine::ends_at(TimePoint now) const {
  if (is_pass_lost()) return now;
  const bool nobody_comes = !round::is_async(plan_) && gather_.settled() && gather_.late().empty();
  return nobody_comes ? std::min<TimePoint>(hard_, opened_at_ + plan_.soft_deadline_min) : hard_;
}

void RunMachine::halt_without_quorum(Effects& out) {
  const round::ContributorSet& held = gather_.held();
  std::string reason = "round " + std::to_string(attempt_.round.value()) + ": " + std::string(kNoQuorumPhrase) +
                       std::to_string(expired_attempts_) + (expired_attempts_ == 1 ? " attempt: " : " attempts: ") +
                       std::to_string(held.size()) + " of " + std::to_string(std::max<std::uint64_t>(plan_.quorum, 1)) +
                       " needed";
  if (held.size() >= plan_.quorum && held.total_weight() < plan_.weight_min) {
    reason += ", with a weight of " + std::to_string(held.total_weight()) + " of " + std::to_string(plan_.weight_min);
  }
  StatusStep step{RunStatus::kPaused, std::move(reason)};
  const std::set<SiteId> missing = absent();
  step.absent.assign(missing.begin(), missing.end());
  halt(std::move(step), out);
}

Effects RunMachine::finalised(Step step, const round::ModelRef& model, TimePoint now,
                              const std::optional<round::VectorRef>& codec_state) {
  if (phase_ != Phase::kFinalising || !awaits(step)) return {};
  phase_ = Phase::kFinalised;
  commit_.model = model;
  commit_.codec_state = codec_state;
  return run_steps(now);
}

Effects RunMachine::commit_recorded(Step step, TimePoint now) {
  if (phase_ != Phase::kCommitting || !awaits(step)) return {};
  note_counted();
  model_ = commit_.model;
  codec_state_ = commit_.codec_state;
  last_committed_ = commit_.round;
  round_begun_ = false;
  goes_over_ = late_is_next(plan_);
  gather_ = {};
  shut_out_.clear();
  begin_passes();
  phase_ = Phase::kIdle;
  Effects out{Publish{commit_, last_committed_.value() >= plan_.rounds}};
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

void RunMachine::note_on_record() {
  on_record_.clear();
  for (const round::Participant& participant : attempt_.participants) on_record_.insert(participant.site);
}

// A site that was called by an attempt which the journal did not take is no participant yet, and may no longer be a
// member when the run goes on. So a round without any record begins anew, and a round with one draws its substitutes
// anew.
void RunMachine::forget_unrecorded() {
  if (attempt_.attempt == AttemptId(1)) {
    round_begun_ = false;
  } else if (std::erase_if(attempt_.participants, [this](const auto& one) { return !on_record_.contains(one.site); }) ==
             0) {
    return;
  }
  gather_ = {};
  taking_.clear();
}

Effects RunMachine::step_failed(Step step, const Error& error) {
  Effects out;
  if (status_step_ || !awaits(step)) return out;
  if (phase_ == Phase::kRecording) forget_unrecorded();
  if (phase_ == Phase::kReducing) gather_ = {};  // the sum may be empty already
  halt(RunStatus::kPaused, error.message + "; nothing is lost: " + std::string(kMendPhrase), out);
  return out;
}

}  // namespace fluvial::coordinator
