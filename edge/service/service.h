// A site's service: what its machine (edge/logic) decides, carried out. All of it on the node's strand; files and
// kernels on the pool.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/config/settings.h"
#include "core/identity/certificate.h"
#include "core/local/worker_server.h"
#include "core/net/signal.h"
#include "core/store/site_store.h"
#include "core/telemetry/metrics.h"
#include "core/tree/process.h"
#include "core/tree/uplink.h"
#include "edge/logic/site_machine.h"
#include "edge/service/early_reduction.h"
#include "edge/service/gpus.h"
#include "edge/service/model_fetch.h"
#include "edge/service/trainer_desk.h"
#include "edge/service/upload.h"
#include "edge/update/encode.h"
#include "edge/update/resolve.h"

namespace fluvial::edge {

// What /status tells beside the machine's state.
struct Counts {
  std::uint64_t update_bytes_fp32 = 0;  // what the submissions sent would have been, uncompressed
  std::uint64_t updates_submitted = 0;
  std::uint64_t counted = 0;
  std::uint64_t late = 0;
  std::uint64_t refused = 0;
  double residual_norm = 0;
};

class EdgeService final : public tree::UplinkOwner {
 public:
  EdgeService(tree::Process& process, const config::EdgeSettings& settings, net::HostPort coordinator,
              identity::PeerIdentity self, std::shared_ptr<const identity::TlsContext> tls,
              std::unique_ptr<store::SiteStore> store, std::shared_ptr<SiteGpus> gpus);  // null: none
  ~EdgeService() override;

  Status open();  // what was left unresolved, and the workers' socket; then everything runs with the process
  void stop();
  Status failure() const { return failure_ ? Status{*failure_} : Status{}; }  // why it ended of itself
  std::string status_json() const;

  net::Awaitable<Result<round::Standing>> standing() override;
  net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease) override;
  void parent_up(const tree::Lease& lease, std::shared_ptr<net::Session> session) override;
  void parent_down(const Error& why) override;
  net::Awaitable<Status> from_parent(net::Frame frame) override;

 private:
  // messages.cc
  Status on_round_open(const v1::RoundOpen& message);
  Status on_round_commit(const v1::RoundCommit& message);
  Status on_run_state(const v1::RunState& message);
  Status on_receipt(const v1::Receipt& message);
  Status on_outcome_reply(const v1::OutcomeReply& message);

  // run_end.cc: a run's end, and what workers are told of commits and of it
  void note_end(RunId run, const std::string& state);
  const char* late_text(RunId run) const;  // what becomes of an update that is late
  void note_commit(RunId run, RoundId round, const round::ModelRef& model);
  void tell_committed();
  void end_for_workers(RunId run, std::string_view state);
  net::Awaitable<void> wait_for_last_model();
  bool is_read(RunId run) const;  // its workers' memory
  void tell_ended();
  void tell_passed();
  void say_ended();
  void tell_end_if_due();

  // history.cc: a lease of another history
  void apply(const EnterHistory& effect);
  net::Awaitable<void> enter_history();
  Result<std::optional<Pending>> load();  // what the store holds: the submission without an outcome, workers' outcomes
  void note_put_aside(const store::PutAside& aside);

  // effects.cc
  void carry_out(Effects effects);
  void apply(const FetchModel& effect);
  void apply(const Train& effect);
  void apply(const Encode& effect);
  void apply(const Fold& effect);
  void apply(const Send& effect);
  void apply(const StopSending& effect);
  void apply(const Ask& effect);
  void apply(const AskRun& effect);
  void apply(const Resolve& effect);
  void apply(const DeclineRound& effect);
  void apply(const CompleteRun& effect);
  net::Awaitable<void> encode(Encode effect, Trained trained);
  net::Awaitable<void> fold(Fold effect, Trained trained);
  net::Awaitable<void> resolve(Pending pending, Outcome outcome);
  net::Awaitable<void> run_over(RunId run);
  Result<std::vector<store::Unspent>> begin_run(const Offer& offer, const Trained& trained);
  void note_unspent(RunId run, const std::vector<store::Unspent>& unspent);
  static Pending pending_of(const store::PendingInfo& info);
  Trained take_trained(const Offer& offer);
  // A view of all three.
  UpdateJob job_of(const Offer& offer, const Trained& trained, PartialMean* early,
                   std::atomic<std::uint64_t>* residual_lost) const;
  void on_model(HeldModel model);
  void on_trained(const Train& effect, TimePoint begun, Result<Trained> trained);
  void on_sent(const UploadItem& item, double seconds);
  void note_outcome(const Pending& pending, Outcome outcome);
  void note_residual(RunId run, RoundId round, const store::Carried& carried);
  void note_lost(RunId run, RoundId round, std::uint64_t values);  // of the residual, unusable
  net::Awaitable<void> ask_again();
  Algorithm choose_reduction() const;  // as the settings say, or what takes least here; measures, and logs why
  bool store_failed();                 // then the agent ends
  bool gpu_failed();                   // likewise
  bool ends_by(const std::optional<Error>& fault, std::string_view what);
  void results_are_read(std::shared_ptr<PartialMean> early, std::vector<TrainedPart> parts);
  void note_gpus();
  local::WorkerServerOptions worker_options();
  telemetry::Logger log_of(RunId run, RoundId round) const;
  std::uint32_t site() const { return self_.node.value(); }

  tree::Process& process_;
  tree::Runtime& runtime_;
  config::EdgeSettings settings_;
  identity::PeerIdentity self_;
  std::unique_ptr<store::SiteStore> store_;
  std::shared_ptr<SiteGpus> gpus_;  // null: none
  SiteGpus::Counts on_gpus_;        // of them what the metrics have
  std::optional<Error> failure_;
  telemetry::SiteMetrics metrics_;
  telemetry::Gauge connected_;
  telemetry::Gauge round_gauge_;
  telemetry::Gauge model_version_;
  tree::Uplink uplink_;
  ModelFetch fetch_;
  Upload upload_;
  TrainerDesk desk_;
  EarlyReduction early_;
  Algorithm reduction_ = Algorithm::kDirect;
  std::unique_ptr<local::WorkerServer> workers_;
  net::AsyncSignal stop_;
  net::AsyncSignal model_here_;
  bool stopping_ = false;

  std::optional<SiteMachine> machine_;  // from open() on
  round::Lineage lineage_;              // of the history that the store is in
  Epoch heard_;                         // the greatest epoch
  struct Entering {
    round::Lineage lineage;
    Epoch lease;
  };
  std::optional<Entering> entering_;  // another history
  net::AsyncSignal entered_;
  std::deque<Effect> effects_;
  bool carrying_out_ = false;
  std::optional<HeldModel> held_;
  std::optional<Trained> trained_;
  std::shared_ptr<const store::PendingUpdate> pending_;
  std::uint64_t submission_sent_ = 0;
  struct Committed {
    RunId run;
    RoundId round;
    round::ModelRef model;
  };
  std::optional<Committed> committed_;     // the newest round that was
  std::optional<local::EndedRun> ending_;  // workers are told once they have its last model
  std::map<RunId, std::string> names_;     // of runs whose rounds opened here and whose end workers have not heard of
  std::vector<local::EndedRun> passed_;    // likewise, of runs before the one at hand
  bool reading_results_ = false;           // where the workers have them
  bool end_is_due_ = false;                // once they are read
  RunId run_;
  std::string run_name_;  // of run_, once one of its rounds opened here
  RoundId round_;
  Counts counts_;
};

}  // namespace fluvial::edge
