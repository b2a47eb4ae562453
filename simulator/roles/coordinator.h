// The coordinator's process: coordinator/service as it ships, without its ports and its authority, on a simulated host.
// What is here is the person who looks after it, where it may be wrong on purpose, and what the checks are told. The
// journal, the model files and their crashes are real.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/service/authorities.h"
#include "coordinator/service/root.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "simulator/node/node.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class CoordinatorRole final : public Node, private coordinator::RunObserver {
 public:
  CoordinatorRole(Cast& cast, HostId host);
  ~CoordinatorRole() override;

  void start() override;

  // ---- as a person would
  void revoke(NodeId node);
  bool enrol(store::NodeRow node, const store::NewCertificate& certificate);  // anew; whether it is in the journal
  void pause();                                                               // attend() resumes it
  void stop();                                                                // attend_end() continues it
  void roll_over();                                                           // the next step
  // The open round, as far as revocations and quarantines go: otherwise a person must stop the run.
  bool may_close() const;
  const coordinator::Traces& traces() const { return root_->runs().steps().traces(); }  // once it has started

 private:
  class Tampered;
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override;
  void after_frame() override;

  // ---- what it does
  void run_taken_up(const coordinator::RunMachine& machine) override;
  void status_told(RunId run, coordinator::RunStatus status, const std::string& reason) override;
  void recording(const round::AttemptRecord& row) override;
  void recorded(const round::AttemptRecord& row) override;
  void step_failed(const round::AttemptRecord& attempt, coordinator::DiskPart part, const Error&) override;
  void taking(const coordinator::RunMachine& machine, const transfer::StagedArrival& arrival) override;
  void pass_over(const coordinator::Reduce& reduce, const round::AttemptRecord& attempt,
                 const coordinator::NamedVector& mean, Duration took) override;
  void committing(const store::CommitRow& row, const coordinator::NextModel& next) override;
  void committed(const store::CommitRow& row, const round::Pace&) override;
  void quarantined(SiteId site, const std::string& reason) override;
  void quarantine_recorded(SiteId site) override;
  // coordinator_timeline.cc
  void check_clock(const round::NodeReport& report);
  void check_timeline(RunId run, RoundId round);
  bool says(v1::Envelope& message);
  void brought(const round::ContributorSet& contributors);
  NamedBytes named(const coordinator::NamedVector& vector);

  Status open();  // what is on the disk, as the service opens it
  net::Awaitable<void> take_up();
  net::Awaitable<void> command(net::Awaitable<Status> given);
  net::Awaitable<void> do_revoke(NodeId node);
  net::Awaitable<void> lift_quarantine(SiteId site);  // tampered
  net::Awaitable<void> attend(RunId run);             // somebody sees that the run is paused
  net::Awaitable<void> attend_end();                  // somebody continues the run that has ended
  Result<coordinator::NewRun> continuation_of(const store::RunRow& before) const;
  net::Awaitable<Status> continue_run();
  net::Awaitable<void> prune_journal();
  // coordinator_certificates.cc
  Status begin_certificates();
  void issue_own();
  net::Awaitable<void> take_step();
  Status step(coordinator::RolloverPhase phase, Rollovers::Wish wish);
  Status journal_says();
  net::Awaitable<void> help_stranded();
  net::Awaitable<void> renew_own();
  net::Awaitable<void> look_at_ends();
  Duration look_every() const { return cast_.past_certificate_max() / 4; }
  net::Awaitable<void> serve_enrolment(std::shared_ptr<net::Session> session);
  net::Awaitable<v1::RenewReply> on_its_way(v1::RenewReply reply);
  void lease_refused(NodeId node, const Error& why);
  void attend_journal();  // somebody sees that it has failed
  void fail(std::string_view what, const Error& why);
  std::size_t substitutes_left() const;  // sites that may still be called into the open round
  const coordinator::RunMachine* machine() const;
  const coordinator::Federation& book() const;

  Cast& cast_;
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  std::unique_ptr<coordinator::Root> root_;
  std::unique_ptr<coordinator::Authorities> authorities_;  // where they roll over
  std::shared_ptr<identity::LiveAuthority> authority_;     // of certificates that end
  std::optional<coordinator::RenewalDesk> desk_;
  std::set<std::string> superseded_;                    // serials that were renewed
  std::map<std::pair<SiteId, Digest>, Epoch> brought_;  // under which lease, of a tampered one's arrivals
  std::uint64_t tokens_ = 0;
  bool steps_ = false;  // a step of a rollover is under way
};

}  // namespace fluvial::simulator
