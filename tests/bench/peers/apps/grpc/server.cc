// A plain gRPC server that sums what sites stream and streams the mean back: grpc_server PORT TLS_FOLDER SITES PARAMS
// ROUNDS FOLDER.
//
// gRPC's synchronous API with mutual TLS, a thread a stream. A chunk is added to the one sum as it arrives, under a
// lock for each chunk. Nothing is durable, nothing is checked: a lower bound of what a service on gRPC takes. It writes
// FOLDER/marks, a line a round, and the last mean to FOLDER/final.f32.
#include <grpcpp/grpcpp.h>
#include <sum.grpc.pb.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <vector>

#include "tests/bench/peers/apps/grpc/common.h"

namespace sums {
namespace {

class Round {
 public:
  Round(std::uint64_t sites, std::uint64_t params, std::string folder)
      : sites_(sites), sum_(params), mean_(params), locks_(params / kChunkValues + 1), folder_(std::move(folder)) {}

  bool add(const Chunk& chunk) {
    const std::uint64_t first = chunk.first();
    const std::uint64_t count = chunk.values().size() / sizeof(float);
    if (first % kChunkValues != 0 || first + count > sum_.size()) return false;
    const auto* values = reinterpret_cast<const float*>(chunk.values().data());
    const std::lock_guard lock(locks_[first / kChunkValues]);
    for (std::uint64_t i = 0; i < count; ++i) sum_[first + i] += values[i];
    return true;
  }

  // A site has sent all; returns when all sites have, with the mean in place.
  void finish() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = round_;
    if (++in_ == sites_) {
      const auto part = 1.0F / static_cast<float>(sites_);
      for (std::size_t i = 0; i < sum_.size(); ++i) {
        mean_[i] = sum_[i] * part;
        sum_[i] = 0;
      }
      in_ = 0;
      ++round_;
      write_mark();
      all_in_.notify_all();
    }
    all_in_.wait(lock, [&] { return round_ != mine; });
  }

  const std::vector<float>& mean() const { return mean_; }

 private:
  void write_mark() const {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    if (std::FILE* file = std::fopen((folder_ + "/marks").c_str(), "a")) {
      std::fprintf(file, "%.6f\n", now.count());
      std::fclose(file);
    }
  }

  std::uint64_t sites_;
  std::vector<float> sum_, mean_;
  std::vector<std::mutex> locks_;
  std::string folder_;
  std::mutex mutex_;
  std::condition_variable all_in_;
  std::uint64_t in_ = 0, round_ = 0;
};

class Service final : public Sum::Service {
 public:
  Service(Round& round, std::uint64_t params, std::uint64_t rounds) : round_(round), params_(params), rounds_(rounds) {}

  grpc::Status Run(grpc::ServerContext*, grpc::ServerReaderWriter<Chunk, Chunk>* stream) override {
    Chunk chunk;
    for (std::uint64_t round = 0; round < rounds_; ++round) {
      const bool received =
          for_chunks(params_, [&](std::uint64_t, std::uint64_t) { return stream->Read(&chunk) && round_.add(chunk); });
      if (!received) return {grpc::StatusCode::INVALID_ARGUMENT, "a chunk is missing or out of place"};
      round_.finish();
      for_chunks(params_, [&](std::uint64_t first, std::uint64_t count) {
        chunk.set_first(first);
        chunk.set_values(round_.mean().data() + first, count * sizeof(float));
        return stream->Write(chunk);
      });
    }
    return grpc::Status::OK;
  }

 private:
  Round& round_;
  std::uint64_t params_, rounds_;
};

int serve(char** words) {
  const std::string tls = words[2], folder = words[6];
  const std::uint64_t params = std::stoull(words[4]), rounds = std::stoull(words[5]);
  Round round(std::stoull(words[3]), params, folder);
  Service service(round, params, rounds);
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = text_of(tls + "/ca.crt");
  options.pem_key_cert_pairs.push_back({text_of(tls + "/node.key"), text_of(tls + "/node.crt")});
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::string(words[1]), grpc::SslServerCredentials(options));
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::getchar();  // until the bench, having seen all sites end, closes the pipe
  server->Shutdown();
  std::ofstream(folder + "/final.f32", std::ios::binary)
      .write(reinterpret_cast<const char*>(round.mean().data()), static_cast<std::streamsize>(params * sizeof(float)));
  return 0;
}

}  // namespace
}  // namespace sums

int main(int count, char** words) { return count == 7 ? sums::serve(words) : 2; }
