// A site's service: routes what the parent sends to its machine (edge/logic), and what that decides to the parts that
// carry it out. All of it on the node's strand; files and kernels on the pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/config/settings.h"
#include "core/identity/certificate.h"
#include "core/local/model_memory.h"
#include "core/net/pace.h"
#include "core/net/task_group.h"
#include "core/tree/model_receiver.h"
#include "core/tree/orders.h"
#include "core/tree/renewal.h"
#include "core/tree/reporter.h"
#include "core/tree/runtime.h"
#include "core/tree/uplink.h"
#include "core/tree/vectors.h"
#include "edge/logic/in_order.h"
#include "edge/logic/site_machine.h"
#include "edge/service/common_models.h"
#include "edge/service/histories.h"
#include "edge/service/log_report.h"
#include "edge/service/owner.h"
#include "edge/service/site_context.h"
#include "edge/service/submission.h"
#include "edge/service/trainers.h"
#include "edge/service/update_maker.h"
#include "edge/service/worker_news.h"

namespace fluvial::edge {

class EdgeService : public tree::UplinkOwner {
 public:
  // What it is made of; what is a reference outlives it.
  struct Parts {
    tree::UplinkOptions uplink;
    tree::Dial dial;
    identity::PeerIdentity self;
    std::unique_ptr<store::SiteStore> store;
    std::shared_ptr<SiteGpus> gpus;  // null: none
    Trainers& trainers;
    SiteReport& report;
    // Of its process.
    net::TaskGroup& tasks;
    std::function<void(bool)> set_ready;
    std::function<void()> request_stop;
    std::optional<WallTime> certificate_ends = {};
    tree::Renewal* renewal = nullptr;                // outlives it; null: the certificate is not renewed
    std::optional<identity::PrivateKey> key = {};    // that signs what the site contributes; none: it signs nothing
    CommonModels* common_models = nullptr;           // outlives it; null: no other site shares this process
    std::function<std::uint64_t()> free_bytes = {};  // of the store's disk; blocking, thread safe
  };
  EdgeService(tree::Runtime& runtime, const config::EdgeSettings& settings, Parts parts);
  ~EdgeService() override;

  Status open();  // what was left unresolved, and the trainers; then everything runs with the process
  void stop();
  Status failure() const { return site_.failure ? Status{*site_.failure} : Status{}; }  // why it ended of itself
  // On the strand.
  void certificate_renewed(const std::string& chain_pem, WallTime ends);
  void look_at_certificates() { uplink_.end_past_certificate(); }
  SiteStatus status() const;

  net::Awaitable<Result<round::Standing>> standing() override { return histories_.standing(); }
  net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease) override;
  std::uint64_t trust() const override;
  void renewal_told(Duration validity, std::uint64_t trust) override;
  void parent_up(const tree::Lease& lease) override;
  void parent_down(const Error& why) override;
  net::Awaitable<Status> from_parent(net::Frame frame) override;

 private:
  // messages.cc
  Status on_model_ahead(const v1::ModelAhead& message);
  Status on_round_open(const v1::RoundOpen& message);
  Status on_round_commit(const v1::RoundCommit& message);
  Status on_run_state(const v1::RunState& message);
  Status on_receipt(const v1::Receipt& message);
  Status on_outcome_reply(const v1::OutcomeReply& message);
  void note_end(RunId run, std::string_view state, std::string_view name = {});
  void on_followed(RunId run);

  void carry_out(Effects effects);
  void on_fed(WorkId work, std::shared_ptr<const Feed> feed);
  void send_early(const std::optional<Received>& received);
  void apply(const FetchModel& effect);
  void apply(const Train& effect);
  void apply(const FetchState& effect);  // passes.cc
  void apply(const FetchMean& effect);
  void apply(const Encode& effect);
  void apply(const EncodePass& effect);
  void on_vector(const round::ModelRef& ref, const SharedBytes& bytes);
  void apply(const Fold& effect) { maker_.fold(effect); }
  void apply(const Send& effect) { submission_.send(effect); }
  void apply(const StopSending&) { submission_.stop_sending(); }
  void apply(const Ask& effect) { submission_.ask(effect); }
  void apply(const AskRun& effect);
  void apply(const Resolve& effect) { submission_.resolve(effect); }
  void apply(const EnterHistory&) { histories_.enter(); }
  void apply(const DeclineRound& effect);
  void apply(const CompleteRun& effect);

  tree::ModelReceiver::Owner model_owner();
  Trainers::Events trainer_events();
  UpdateMaker::Events maker_events();
  Histories::Events history_events();
  Result<Verdict> verdict_of(const wire::Commit& commit) const;
  std::optional<round::ModelRef> flowing() const;
  Result<std::optional<Pending>> load();  // what the store holds: the submission without an outcome, workers' outcomes
  void on_model(HeldModel model);
  CommonModels::Which common(const round::ModelRef& model, NodeId parent) const {
    return {histories_.current(), model, parent};
  }
  net::Awaitable<void> train_with_room(Train effect, HeldModel base);
  void train(const Train& effect, HeldModel base);
  void wait_for_room(const Offer& offer, const Error& why);
  void on_trained(const Train& effect, TimePoint begun, Result<Trained> trained);
  round::NodeReport own_report() const;
  net::Awaitable<void> complete_run(RunId run);
  net::Awaitable<void> ask_again();

  config::EdgeSettings settings_;
  identity::PeerIdentity self_;
  Trainers& trainers_;
  std::function<void(bool)> set_ready_;
  SiteContext site_;
  Owner owner_;
  tree::Uplink uplink_;
  tree::Orders orders_;
  NodeId schema_from_;  // the parent that the model on its way begins at
  std::shared_ptr<local::ModelMemory> model_memory_ = local::ModelMemory::make();
  tree::ModelReceiver models_;
  tree::Vectors vectors_;
  struct Vector {
    Digest digest{};
    SharedBytes bytes;
  };
  void want_vector(const Offer& offer, const round::VectorRef& vector, const std::optional<Vector>& here);
  std::optional<Vector> codec_state_;  // of a run whose rounds hand one down, that came last
  std::optional<Vector> mean_;
  bool is_state_wanted_ = false;  // of the vector that is fetched: it is a state; else a mean
  Submission submission_;
  UpdateMaker maker_;
  Histories histories_;
  WorkerNews news_;
  std::optional<SiteMachine> machine_;  // from open() on
  struct Early {
    WorkId work;
    std::shared_ptr<const Feed> feed;
  };
  std::optional<Early> early_;  // what is sent, while there is a parent, before it is durable
  InOrder<Effect> effects_;
  net::Pace states_;  // of runs, that the parent tells
  std::optional<HeldModel> held_;
  struct Fetching {
    round::ModelRef model;
    TimePoint since;  // it was named
  };
  std::optional<Fetching> fetching_;
  CommonModels* common_models_;
  std::optional<Error> trouble_;  // why it declined a round last, until it trains again
  std::optional<WallTime> certificate_ends_;
  tree::Renewal* renewal_;
  tree::Reporter reporter_;
};

}  // namespace fluvial::edge
