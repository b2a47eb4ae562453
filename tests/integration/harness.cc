#include "tests/integration/harness.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/bench_update.h"
#include "core/store/safetensors.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
constexpr std::uint64_t kSeed = 1;

std::span<const float> floats_of(ByteSpan bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
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
  workers_.clear();
}

void FederationTest::start(std::uint64_t sites, std::uint64_t aggregators) {
  const cli::FederationShape shape{
      .sites = sites, .aggregators = aggregators, .weight_max = cli::kBenchWeightMax, .may_fail = true};
  federation_ = std::make_unique<cli::LocalFederation>(*supervisor_, FLUVIAL_EXECUTABLE, folder_.path(), shape);
  const Status started = federation_->start();
  ASSERT_TRUE(started.ok()) << started.error().message;
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
  return run.ok() ? *run : 0;
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

std::string FederationTest::log_of(const std::string& name) const { return content_of(folder_.file(name + ".log")); }

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
  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), .output = content_of(log)};
}

std::vector<int> processes_that_mention(const std::string& text) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (content_of(entry.path() / "cmdline").find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace fluvial::integration
