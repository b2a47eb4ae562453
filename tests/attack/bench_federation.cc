#include "tests/attack/bench_federation.h"

#include <fmt/format.h>

#include <thread>

#include "cli/bench_update.h"
#include "cli/local_run.h"
#include "core/store/safetensors.h"

namespace fluvial::attack {
namespace {

constexpr std::uint64_t kParams = 1'000'000;
constexpr std::chrono::milliseconds kTraining{150};

}  // namespace

BenchFederation::BenchFederation(cli::FederationShape shape)
    : folder_(std::move(cli::WorkFolder::open("", false, "bench")).value()),
      supervisor_(std::move(cli::Supervisor::create(std::chrono::seconds(20))).value()),
      federation_(*supervisor_, FLUVIAL_EXECUTABLE, folder_.path(), std::move(shape)) {}

BenchFederation::~BenchFederation() {
  supervisor_->stop();
  workers_.clear();
}

Status BenchFederation::start(std::chrono::milliseconds soft_deadline) {
  FLUVIAL_TRY(federation_.start());
  for (std::size_t i = 1; i <= federation_.sites().size(); ++i) {
    workers_.push_back(std::make_unique<integration::ThreadWorker>(
        federation_.sites()[i - 1].worker_socket, cli::bench_weight(i),
        [i](const local::Task& task, std::span<const float> base, std::span<float> local) {
          std::this_thread::sleep_for(kTraining);
          cli::apply_update({1, task.round.value(), i}, base, local);
          return true;
        }));
  }
  const auto schema = round::Schema::make({{"w", round::DType::kF32, {kParams}}}).value();
  std::vector<float> values(kParams);
  cli::fill_model(1, values);
  store::PosixFileSystem files;
  FLUVIAL_TRY(
      store::write_model(files, folder_.file("initial.safetensors"), schema, std::as_bytes(std::span(values)), {}));
  round::Plan plan;
  plan.name = "bench";
  plan.rounds = 1'000'000;
  plan.participants_min = plan.quorum = federation_.sites().size();
  plan.soft_deadline = soft_deadline;
  plan.hard_deadline = std::chrono::seconds(120);
  plan.models_kept = 2;
  FLUVIAL_ASSIGN(run_, cli::start_local_run(federation_.admin(), plan, folder_.path(), "initial.safetensors"));
  return {};
}

Result<std::uint64_t> BenchFederation::committed() const {
  FLUVIAL_ASSIGN(const cli::json::value run, federation_.admin().get(fmt::format("/v1/runs/{}", run_)));
  return cli::count_member(run, "committed");
}

}  // namespace fluvial::attack
