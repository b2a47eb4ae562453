#include "tests/integration/harness.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/bench_audit.h"
#include "cli/bench_update.h"
#include "core/base/testing.h"
#include "core/store/plan_json.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
constexpr std::uint64_t kSeed = 1;
constexpr auto kEventLimit = std::chrono::seconds(120);

std::span<const float> floats_of(ByteSpan bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

ThreadWorker::ThreadWorker(std::string socket, std::uint64_t weight, Train train)
    : socket_(std::move(socket)), weight_(weight), train_(std::move(train)), thread_([this] { run(); }) {}

ThreadWorker::~ThreadWorker() {
  stopping_ = true;
  thread_.join();
}

void ThreadWorker::run() {
  while (!stopping_) {
    auto client = local::WorkerClient::attach_with_retry(socket_, {.name = "test"}, std::chrono::milliseconds(100));
    if (client.ok()) serve(std::move(*client));
  }
}

void ThreadWorker::serve(local::WorkerClient client) {
  for (;;) {
    const auto task = client.next_task();
    if (!task.ok() || !*task) return;
    auto trained = client.new_model();
    if (!trained.ok()) return;
    const MutableByteSpan out = trained->span();
    const bool done = train_(**task, floats_of((*task)->model->bytes()),
                             {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    const Status answered =
        done ? client.submit(std::move(*trained), weight_, {{"loss", 1.0}}) : client.fail("told to");
    (void)answered.ok();  // when the agent is gone next_task() says so
  }
}

void RoundGate::wait_at(std::uint64_t round) {
  std::unique_lock lock(mutex_);
  ++arrived_[round];
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_ || round < from_; });
}

void RoundGate::wait_arrival(std::uint64_t round, std::size_t workers) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const auto found = arrived_.lower_bound(round);
    return found != arrived_.end() && found->second >= workers;
  });
}

void RoundGate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

FederationTest::FederationTest()
    : folder_(std::move(cli::WorkFolder::open("", false, "test")).value()),
      supervisor_(std::move(cli::Supervisor::create(std::chrono::seconds(20))).value()) {}

FederationTest::~FederationTest() {
  if (HasFailure()) {
    for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
      if (file.path().extension() == ".log") {
        fmt::print("==> {}\n{}\n", file.path().filename().string(), cli::tail_of(file.path().string(), 25));
      }
    }
  }
  supervisor_->stop();
  for (const auto& hold : holds_) hold->open();
  workers_.clear();
}

RoundGate& FederationTest::hold_from(std::uint64_t round) {
  return *holds_.emplace_back(std::make_unique<RoundGate>(round));
}

void FederationTest::start(std::uint64_t sites, std::uint64_t aggregators) {
  start({.sites = sites, .aggregators = aggregators});
}

void FederationTest::start(cli::FederationShape shape) {
  shape.weight_max = cli::kBenchWeightMax;
  shape.may_fail = true;
  shape.announced = [this](const std::string& name, const value& ready) {
    const std::uint64_t port = cli::count_member(ready, name == "coordinator" ? "member_port" : "port");
    for (TcpGate* gate : gates_[name]) gate->set_target(static_cast<std::uint16_t>(port));
  };
  federation_ =
      std::make_unique<cli::LocalFederation>(*supervisor_, FLUVIAL_EXECUTABLE, folder_.path(), std::move(shape));
  const Status started = federation_->start();
  ASSERT_TRUE(started.ok()) << started.error().message;
}

void FederationTest::put_before_aggregator(TcpGate& gate, cli::FederationShape& shape, const std::string& aggregator) {
  gates_[aggregator].push_back(&gate);
  auto& arguments = shape.arguments[aggregator];
  arguments.insert(arguments.end(), {"--advertise", gate.address()});
}

void FederationTest::put_before_coordinator(TcpGate& gate, cli::FederationShape& shape, const std::string& child) {
  gates_["coordinator"].push_back(&gate);
  auto& arguments = shape.arguments[child];
  arguments.insert(arguments.end(), {"--coordinator", gate.address()});
}

Train FederationTest::gated(RoundGate& gate, std::uint64_t site_index) {
  return [&gate, train = bench_train(site_index)](const local::Task& task, std::span<const float> base,
                                                  std::span<float> local) {
    gate.wait_at(task.round.value());
    return train(task, base, local);
  };
}

Train FederationTest::bench_train(std::uint64_t site_index) {
  return [site_index](const local::Task& task, std::span<const float> base, std::span<float> local) {
    cli::apply_update({kSeed, task.round.value(), site_index}, base, local);
    return true;
  };
}

void FederationTest::add_worker(std::size_t site_index, Train train) {
  if (!train) train = bench_train(site_index);
  workers_.push_back(std::make_unique<ThreadWorker>(federation_->sites().at(site_index - 1).worker_socket,
                                                    cli::bench_weight(site_index), std::move(train)));
}

void FederationTest::add_workers() {
  for (std::size_t i = 1; i <= federation_->sites().size(); ++i) add_worker(i);
}

round::Plan FederationTest::plan(std::uint64_t rounds) const {
  round::Plan plan;
  plan.name = "test";
  plan.rounds = rounds;
  plan.participants_min = plan.quorum = federation_->sites().size();
  plan.soft_deadline = std::chrono::seconds(60);
  plan.hard_deadline = std::chrono::seconds(120);
  plan.models_kept = rounds + 1;
  return plan;
}

void FederationTest::survives_in_round(const round::Plan& plan, std::uint64_t round, const std::string& node) {
  RoundGate& gate = hold_from(round);
  add_worker(1);
  add_worker(2, gated(gate, 2));
  const std::uint64_t run = start_run(plan, 3'000);
  gate.wait_arrival(round);
  federation_->kill(node);
  gate.open();
  ASSERT_TRUE(federation_->restart(node).ok());
  wait_state(run, "done");
  expect_exact(run, plan.rounds);
}

void FederationTest::survives_late_in(const round::Plan& plan, std::uint64_t round) {
  RoundGate& gate = hold_from(round);
  add_worker(1);
  add_worker(2, gated(gate, 2));
  const std::uint64_t run = start_run(plan, 3'000);
  wait_log("site-2", "round committed run=1 round=" + std::to_string(round));
  gate.open();
  wait_log("site-2", "update late");
  federation_->kill("site-2");
  ASSERT_TRUE(federation_->restart("site-2").ok());
  wait_state(run, "done");
  expect_exact(run, plan.rounds);
}

std::uint64_t FederationTest::start_run(const round::Plan& plan, std::uint64_t params) {
  const auto schema =
      round::Schema::make({{"w", round::DType::kF32, {params / 10, 10}}, {"b", round::DType::kF32, {params % 10}}})
          .value();
  std::vector<float> values(params);
  cli::fill_model(kSeed, values);
  store::PosixFileSystem files;
  EXPECT_TRUE(
      store::write_model(files, folder_.file("initial.safetensors"), schema, std::as_bytes(std::span(values)), {})
          .ok());
  const auto run = cli::start_local_run(federation_->admin(), plan, folder_.path(), "initial.safetensors");
  EXPECT_TRUE(run.ok()) << run.error().message;
  if (run.ok()) plans_[*run] = plan;
  return run.ok() ? *run : 0;
}

std::uint64_t FederationTest::continue_run(std::uint64_t run, const round::Plan& plan) {
  auto written = cli::parse_json(store::plan_to_json(plan), "the plan");
  EXPECT_TRUE(written.ok());
  if (!written.ok()) return 0;
  const cli::json::object request{{"plan", std::move(*written)}, {"continue", run}, {"keep_optimizer", true}};
  const auto started = federation_->admin().post("/v1/runs", request);
  EXPECT_TRUE(started.ok()) << started.error().message;
  if (!started.ok()) return 0;
  const std::uint64_t next = cli::count_member(*started, "run");
  plans_[next] = plan;
  continues_[next] = run;
  return next;
}

value FederationTest::wait_event(std::uint64_t run, const std::function<bool(const value&)>& wanted) {
  value found;
  const Status watched =
      federation_->admin().watch(fmt::format("/v1/rounds/watch?run={}&from=1", run), [&](const value& event) {
        if (!wanted(event)) return true;
        found = event;
        return false;
      });
  EXPECT_TRUE(watched.ok()) << watched.error().message;
  EXPECT_TRUE(found.is_object()) << "the stream ended before the event";
  return found;
}

value FederationTest::wait_committed(std::uint64_t run, std::uint64_t round) {
  return wait_event(run, [round](const value& event) {
    return cli::text_member(event, "event") == "committed" && cli::count_member(event, "round") >= round;
  });
}

value FederationTest::wait_state(std::uint64_t run, const std::string& status) {
  return wait_event(run, [&status](const value& event) {
    return cli::text_member(event, "event") == "state" && cli::text_member(event, "status") == status;
  });
}

std::string FederationTest::log_of(const std::string& name) const { return text_of_file(folder_.file(name + ".log")); }

void FederationTest::wait_log(const std::string& name, const std::string& text) {
  const auto there =
      cli::retry(kEventLimit, [&]() -> Result<bool> { return log_of(name).find(text) != std::string::npos; });
  EXPECT_TRUE(there.ok() && *there) << "'" << text << "' is not in\n" << log_of(name);
}

void FederationTest::kill_in_upload(TcpGate& gate, RoundGate& hold, const std::string& site, std::uint64_t round,
                                    std::uint64_t bytes) {
  gate.hold_after(Way::kUp, bytes);
  hold.open();
  gate.wait_done(Way::kUp);
  wait_log(site, fmt::format("update encoded run=1 round={}", round));  // before, the site would make another
  federation_->kill(site);
  gate.cut_all(Way::kUp);
  gate.set({});
  const Status again = federation_->restart(site);
  EXPECT_TRUE(again.ok()) << again.error().to_string();
}

double FederationTest::gauge_of(const std::string& node, const std::string& name) {
  const Result<std::string> page = federation_->metrics_of(node);
  EXPECT_TRUE(page.ok()) << node;
  if (!page.ok()) return -1;
  const std::string role = node.substr(0, node.find('-'));
  const std::string line = fmt::format("\nfluvial_{}_{} ", role, name);
  const std::size_t at = page->find(line);
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::strtod(page->c_str() + at + line.size(), nullptr);
}

value FederationTest::wait_status(std::size_t site_index, const std::function<bool(const value&)>& wanted) {
  value status;
  const auto there = cli::retry(kEventLimit, [&]() -> Result<bool> {
    const auto answer = federation_->status_of(federation_->sites().at(site_index - 1).name);
    if (!answer.ok()) return false;  // not up, or stopped
    status = *answer;
    return wanted(status);
  });
  EXPECT_TRUE(there.ok() && *there) << cli::pretty(status);
  return status;
}

void FederationTest::wait_in(const std::string& node, std::uint64_t round, std::uint64_t sites) {
  value answer;
  const auto there = cli::retry(kEventLimit, [&]() -> Result<bool> {
    FLUVIAL_ASSIGN(answer, federation_->status_of(node));
    const value* const run = node == "coordinator" ? answer.as_object().if_contains("run") : &answer;
    const value* const open = run != nullptr && run->is_object() ? run->as_object().if_contains("open") : nullptr;
    if (open == nullptr || !open->is_object()) return false;
    return cli::count_member(node == "coordinator" ? *open : answer, "round") == round &&
           cli::count_member(*open, "in") == sites;
  });
  EXPECT_TRUE(there.ok() && *there) << node << ": " << cli::pretty(answer);
}

namespace {

const cli::json::array& nodes_of(const value& listed) { return cli::array_member(listed, "nodes"); }

}  // namespace

std::string FederationTest::parent_of(const std::string& name) {
  const auto listed = federation_->admin().get("/v1/nodes");
  EXPECT_TRUE(listed.ok()) << listed.error().message;
  if (!listed.ok()) return "";
  for (const value& node : nodes_of(*listed)) {
    if (cli::text_member(node, "name") == name) return cli::text_member(node, "parent");
  }
  return "";
}

std::size_t FederationTest::sites_at(const std::string& parent) {
  const auto listed = federation_->admin().get("/v1/nodes");
  EXPECT_TRUE(listed.ok()) << listed.error().message;
  if (!listed.ok()) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(nodes_of(*listed), [&](const value& node) {
    return cli::text_member(node, "role") == "site" && cli::text_member(node, "parent") == parent;
  }));
}

cli::json::array FederationTest::committed(std::uint64_t run) {
  const auto listed = federation_->admin().get(fmt::format("/v1/rounds?run={}&from=1&limit=10000", run));
  EXPECT_TRUE(listed.ok()) << listed.error().message;
  return listed.ok() ? cli::array_member(*listed, "rounds") : cli::json::array();
}

void FederationTest::expect_exact(std::uint64_t run) {
  const Status exact = check_exact(run);
  EXPECT_TRUE(exact.ok()) << exact.error().message;
}

void FederationTest::expect_exact(std::uint64_t run, std::size_t rounds) {
  EXPECT_EQ(committed(run).size(), rounds);
  expect_exact(run);
}

Status FederationTest::check_exact(std::uint64_t run) {
  const cli::AdminClient& admin = federation_->admin();
  FLUVIAL_ASSIGN(const value listed, admin.get("/v1/nodes"));
  std::vector<cli::AuditSite> sites;
  for (const value& node : nodes_of(listed)) {
    const std::string name = cli::text_member(node, "name");
    if (!name.starts_with("site-")) continue;  // an aggregator, or a member beside the federation's own sites
    sites.push_back({.index = std::stoull(name.substr(name.rfind('-') + 1)),
                     .node = static_cast<std::uint32_t>(cli::count_member(node, "id")),
                     .name = name});
  }
  std::vector<std::uint64_t> runs = {run};  // the newest first
  for (auto before = continues_.find(run); before != continues_.end(); before = continues_.find(before->second)) {
    runs.push_back(before->second);
  }
  FLUVIAL_ASSIGN(const store::Model initial, model_of(runs.back(), 0));
  cli::Audit audit(plans_.at(runs.back()), kSeed, runs.back(), std::move(sites), cli::kBenchWeightMax, initial.schema);
  for (auto each = runs.rbegin(); each != runs.rend(); ++each) {
    if (*each != runs.back()) audit.continue_as(plans_.at(*each), *each);
    FLUVIAL_TRY(check_rounds(audit, *each));
  }
  return {};
}

Status FederationTest::check_rounds(cli::Audit& audit, std::uint64_t run) {
  std::vector<float> base;
  const cli::json::array rounds = committed(run);
  for (std::uint64_t version = 0; version <= rounds.size(); ++version) {
    FLUVIAL_ASSIGN(std::vector<float> values, model_values(run, version));
    if (version > 0) FLUVIAL_TRY(audit.check_round(rounds[version - 1], base, values));
    base = std::move(values);
    for (const Undone& undone : undone_) {
      if (undone.fork != version) continue;
      for (std::uint64_t site = 1; site <= federation_->sites().size(); ++site) {
        audit.undone(site, undone.round, undone.base);
      }
    }
  }
  return {};
}

Result<store::Model> FederationTest::model_of(std::uint64_t run, std::uint64_t version) {
  FLUVIAL_ASSIGN(const value found, federation_->admin().get(fmt::format("/v1/models/{}/{}", run, version)));
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(store::Model model, store::read_model(files, cli::text_member(found, "path")));
  const std::string digest = to_hex(store::model_digest(model.bytes.span()));
  if (digest != cli::text_member(found, "sha256")) return Error{Code::kDataLoss, "a model without its digest"};
  return model;
}

Result<std::vector<float>> FederationTest::model_values(std::uint64_t run, std::uint64_t version) {
  FLUVIAL_ASSIGN(const store::Model model, model_of(run, version));
  std::vector<float> values(model.schema.value_count());
  round::split_model(model.schema, model.bytes.span(), values, {});
  return values;
}

void FederationTest::note_undone(std::uint64_t run, std::uint64_t round, std::uint64_t fork) {
  Result<std::vector<float>> base = model_values(run, round - 1);
  ASSERT_TRUE(base.ok()) << base.error().message;
  undone_.push_back({round, fork, std::move(*base)});
}

bool is_committed(const value& event, std::uint64_t after) {
  return cli::text_member(event, "event") == "committed" && cli::count_member(event, "round") > after;
}

std::uint64_t outcomes(const value& status, const char* outcome) {
  const value* counts = status.is_object() ? status.as_object().if_contains("outcomes") : nullptr;
  return counts == nullptr ? 0 : cli::count_member(*counts, outcome);
}

bool names(const value& round, const char* list, const std::string& site) {
  return std::ranges::any_of(cli::array_member(round, list),
                             [&](const value& entry) { return cli::text_member(entry, "name") == site; });
}

cli::ProcessSpec fluvial_spec(const cli::WorkFolder& folder, const std::string& name,
                              std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), FLUVIAL_EXECUTABLE);
  return {.name = name,
          .role = "tool",
          .argv = std::move(arguments),
          .log_path = folder.file(name + ".log"),
          .may_fail = true};
}

CommandRun run_fluvial(cli::Supervisor& supervisor, const cli::WorkFolder& folder, std::vector<std::string> arguments) {
  static std::atomic<int> count{0};
  cli::ProcessSpec spec = fluvial_spec(folder, fmt::format("command-{}", ++count), std::move(arguments));
  const std::string log = spec.log_path;
  const auto process = supervisor.spawn(std::move(spec));
  EXPECT_TRUE(process.ok()) << process.error().message;
  if (!process.ok()) return {};
  const int status = supervisor.signal_and_wait(*process, 0);
  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), .output = text_of_file(log)};
}

std::vector<int> processes_that_mention(const std::string& text) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (text_of_file(entry.path() / "cmdline").find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

void copy_folder(const std::string& from, const std::string& to) {
  std::filesystem::create_directory(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string target = to + "/" + entry.path().filename().string();
    if (entry.is_directory()) copy_folder(entry.path().string(), target);
    if (entry.is_regular_file()) std::filesystem::copy_file(entry.path(), target);
  }
}

}  // namespace fluvial::integration
