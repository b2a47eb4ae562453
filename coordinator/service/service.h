// The parts of a coordinator, put together.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/admin/admin.h"
#include "coordinator/service/authorities.h"
#include "coordinator/service/enrol_server.h"
#include "coordinator/service/evaluator.h"
#include "coordinator/service/member_gauges.h"
#include "coordinator/service/own_certificate.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/renewal_desk.h"
#include "coordinator/service/retention.h"
#include "coordinator/service/root.h"
#include "coordinator/service/run_gauges.h"
#include "coordinator/service/run_report.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/tree/process.h"

namespace fluvial::coordinator {

// What is on the disk, opened.
struct Holdings {
  std::unique_ptr<store::CoordinatorJournal> journal;
  std::optional<store::ModelStore> models;
  std::unique_ptr<Authorities> authorities;
  std::shared_ptr<identity::LiveAuthority> authority;  // theirs
  std::unique_ptr<OwnCertificate> own;
  std::string federation;
  Epoch epoch;
};
Result<Holdings> open_holdings(store::FileSystem& files, WallTime now, const telemetry::Logger& log,
                               const config::CoordinatorSettings& settings);

class Service final {
 public:
  Service(tree::Process& process, const config::CoordinatorSettings& settings, Holdings holdings);

  Status open();  // listens everywhere
  std::string ready_json() const;
  void start();        // spawns everything
  void stop();         // on the strand
  void record_stop();  // in the audit log, when all else has ended; blocking

 private:
  void own_renewed();
  Status open_network();  // the admin API for operators
  net::Awaitable<void> record_evaluation(RunId run, RoundId round, round::Metrics metrics);
  bool awaits_evaluation(RunId run) const;
  void release_ends();  // of runs that were held for an evaluation

  tree::Process& process_;
  tree::Runtime& runtime_;
  config::CoordinatorSettings settings_;
  Holdings holdings_;
  Feed feed_;
  RunReport report_;
  Root root_;
  RunGauges run_gauges_;
  MemberGauges member_gauges_;
  Retention retention_;
  RenewalDesk renewals_;
  AdmissionLog admissions_;
  EnrolServer enrol_;
  Admin admin_;
  std::shared_ptr<Evaluator> evaluator_;
  std::multiset<RunId> recording_;  // of evaluations that are on their way to the journal
  admin::Facts facts_;
  std::string admin_socket_;
  std::string worker_socket_;
};

}  // namespace fluvial::coordinator
