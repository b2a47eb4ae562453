// A site whose workers train on emulated GPUs, for tests: real workers and files, a parent on loopback.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/local/worker_client.h"
#include "edge/service/test_site.h"
#include "kernels/cuda/emulated/device.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/device_memory.h"

namespace fluvial::edge {

inline constexpr int kHost = -1;

inline kernels::Device emulated(int index) { return {kernels::DeviceKind::kEmulated, index}; }

// Where a worker keeps its result: a vector of fp32 values on a GPU, and its integers in shared memory; or, on the
// host, all of it there. Reused from round to round.
class ResultMemory {
 public:
  ResultMemory(int place, const round::Schema& schema) : schema_(schema) {
    if (place == kHost || !schema.all_averaged())
      host_.emplace(local::ResultBuffer::create(schema.model_bytes()).value());
    if (place == kHost) return;
    // The vector begins within the allocation.
    device_ = kernels::DeviceBuffer::make(emulated(place), kFirstByte + schema.value_count() * sizeof(float)).value();
    stream_.emplace(kernels::Stream::make(emulated(place)).value());
    location_.emplace();
    location_->device = kernels::device_uuid(emulated(place)).value();
    location_->handle = kernels::export_memory(device_).value().bytes;
    location_->first_byte = kFirstByte;
  }

  void write(const std::vector<float>& values, std::int64_t integer) {
    if (host_ && !location_) {
      const auto integers = std::span(&integer, static_cast<std::size_t>(schema_.integer_count()));
      EXPECT_TRUE(round::join_model(schema_, values, integers, host_->span()).ok());
      return;
    }
    if (host_) {
      const std::vector<float> elsewhere(values.size(), -1.0F);
      EXPECT_TRUE(round::join_model(schema_, elsewhere, std::span(&integer, 1), host_->span()).ok());
    }
    const auto into = device_.as<float>().subspan(kFirstByte / sizeof(float));
    EXPECT_TRUE(kernels::copy_to_device(std::span<const float>(values), into, *stream_).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
  }

  const local::ResultBuffer* host() const { return host_ ? &*host_ : nullptr; }
  std::optional<local::DeviceLocation>& location() { return location_; }

 private:
  static constexpr std::size_t kFirstByte = 48;
  round::Schema schema_;
  std::optional<local::ResultBuffer> host_;
  kernels::DeviceBuffer device_;
  std::optional<kernels::Stream> stream_;
  std::optional<local::DeviceLocation> location_;
};

class Trainer {
 public:
  Trainer(const std::string& socket, local::WorkerOptions options, int place, const round::Schema& schema)
      : memory_(place, schema),
        client_(local::WorkerClient::attach_with_retry(socket, options, std::chrono::minutes(1)).value()) {}

  local::WorkerClient& client() { return client_; }
  ResultMemory& memory() { return memory_; }
  local::Task next() {
    Result<std::optional<local::Task>> task = client_.next_task();
    FLUVIAL_CHECK(task.ok(), task.error().message.c_str());
    FLUVIAL_CHECK(task->has_value(), client_.detach_reason().c_str());
    return std::move(**task);
  }
  Status ready(const round::ByteRanges& ranges, std::uint64_t weight, bool update) {
    if (!memory_.location()) return client_.ready(*memory_.host(), ranges, weight, update);
    return client_.ready(*memory_.location(), memory_.host(), ranges, weight, update);
  }
  Status submit(local::TaskResult result) {
    if (!memory_.location()) return client_.submit(*memory_.host(), std::move(result));
    return client_.submit(*memory_.location(), memory_.host(), std::move(result));
  }

 private:
  ResultMemory memory_;
  local::WorkerClient client_;
};

class GpuSiteTest : public SiteTest {
 protected:
  static constexpr int kGpus = 2;

  explicit GpuSiteTest(const Shape& shape) : SiteTest(shape), with_integers_(shape.integers > 0) {
    for (std::uint64_t version = 0; version < 6; ++version) parent_.hold(base(version));
  }
  void SetUp() override {
    if (!kernels::use_emulated_device(kGpus)) GTEST_SKIP() << "the emulator does not run here";
    kernels::emulate_work(kernels::EmulatedWork::kMixed);
  }
  ~GpuSiteTest() override { stop_site(); }

  HeldModel base(std::uint64_t version) const { return with_integers_ ? model(version) : plain_model(version); }
  round::Schema schema_of_model() const { return base(0).schema; }
  void start(std::uint64_t workers, const std::string& gpus = "emulated:0,emulated:1") {
    start_site([&](config::EdgeSettings& settings) {
      settings.workers = workers;
      settings.reduction = "direct";
      settings.gpus = gpus;
    });
    parent_.joined.take();
  }
  std::unique_ptr<Trainer> attach(int place, local::WorkerOptions options) {
    return std::make_unique<Trainer>(worker_socket_, std::move(options), place, schema_of_model());
  }
  // A worker on the first GPU, with its task of a round that the parent has just opened.
  std::unique_ptr<Trainer> in_training(std::uint64_t round) {
    std::unique_ptr<Trainer> trainer = attach(0, {.name = "gpu-0"});
    parent_.open_round(kSite, round, base(round - 1));
    trainer->next();
    return trainer;
  }
  void commit(std::uint64_t round, const transfer::StagedArrival& arrival, bool last = false) {
    wire::Commit commit = commit_of(round, &arrival);
    commit.model = base(round).ref;
    commit.last = last;
    parent_.commit(kSite, commit);
  }
  std::int64_t count_of(const char* what) { return status().at(what).to_number<std::int64_t>(); }

 private:
  const bool with_integers_;
};

}  // namespace fluvial::edge
