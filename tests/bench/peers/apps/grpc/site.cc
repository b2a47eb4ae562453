// A site of server.cc: grpc_site PORT TLS_FOLDER SITE PARAMS ROUNDS FOLDER. The work is that of drivers/work.py.
#include <grpcpp/grpcpp.h>
#include <sum.grpc.pb.h>

#include <vector>

#include "tests/bench/peers/apps/grpc/common.h"

namespace sums {
namespace {

// Of a .npy file that holds fp32 values alone: they are its last bytes.
std::vector<float> read_values(const std::string& path, std::uint64_t count) {
  std::vector<float> values(count);
  std::ifstream file(path, std::ios::binary);
  file.seekg(-static_cast<std::streamoff>(count * sizeof(float)), std::ios::end);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
  return values;
}

int run(char** words) {
  const std::string tls = words[2], folder = words[6];
  const std::uint64_t params = std::stoull(words[4]), rounds = std::stoull(words[5]);
  const std::vector<float> noise = read_values(folder + "/noise-" + words[3] + ".npy", params);
  std::vector<float> model = read_values(folder + "/initial.npy", params);
  grpc::SslCredentialsOptions options{text_of(tls + "/ca.crt"), text_of(tls + "/node.key"), text_of(tls + "/node.crt")};
  const auto stub =
      Sum::NewStub(grpc::CreateChannel("localhost:" + std::string(words[1]), grpc::SslCredentials(options)));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto stream = stub->Run(&context);
  Chunk chunk;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const float part = 1.0F + static_cast<float>(round) / 8.0F;
    for (std::uint64_t i = 0; i < params; ++i) model[i] += noise[i] * part;
    for_chunks(params, [&](std::uint64_t first, std::uint64_t count) {
      chunk.set_first(first);
      chunk.set_values(model.data() + first, count * sizeof(float));
      return stream->Write(chunk);
    });
    const bool received = for_chunks(params, [&](std::uint64_t first, std::uint64_t count) {
      if (!stream->Read(&chunk) || chunk.first() != first || chunk.values().size() != count * sizeof(float))
        return false;
      std::copy_n(reinterpret_cast<const float*>(chunk.values().data()), count, model.data() + first);
      return true;
    });
    if (!received) return 1;
  }
  stream->WritesDone();
  return stream->Finish().ok() ? 0 : 1;
}

}  // namespace
}  // namespace sums

int main(int count, char** words) { return count == 7 ? sums::run(words) : 2; }
