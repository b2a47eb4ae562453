// Stands in for libnccl.so.2 on emulated devices: the same functions, group semantics checked, sums on the host in the
// order of the ranks. The environment variable FLUVIAL_FAKE_NCCL names a function that fails,
// or "a sum", which is wrong then.
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

namespace {

enum : int { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum : int { kFloat = 7, kSum = 0 };

struct Clique {
  int ranks = 0;
};
struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
};
struct Call {
  const float* from;
  float* to;
  std::size_t count;
  int root;
  Comm* comm;
};

std::set<Comm*> live;
std::vector<Call> group;
int depth = 0;

bool fails(std::string_view function) {
  const char* const named = std::getenv("FLUVIAL_FAKE_NCCL");
  return named != nullptr && function == named;
}

int run(const std::vector<Call>& calls) {
  const Call& first = calls.front();
  std::map<int, const Call*> ranks;
  for (const Call& call : calls) {
    if (call.count != first.count || call.root != first.root) return kInvalidArgument;
    if (!ranks.emplace(call.comm->rank, &call).second) return kInvalidUsage;
  }
  if (static_cast<int>(ranks.size()) != first.comm->clique->ranks || !ranks.contains(first.root)) {
    return kInvalidUsage;  // the real one waits for ever
  }
  float* const to = ranks.at(first.root)->to;
  if (to == nullptr) return kInvalidArgument;
  for (std::size_t i = 0; i < first.count; ++i) {
    float sum = ranks.at(0)->from[i];
    for (int rank = 1; rank < first.comm->clique->ranks; ++rank) sum += ranks.at(rank)->from[i];
    to[i] = fails("a sum") ? 0 : sum;
  }
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22'809;
  return fails("ncclGetVersion") ? kSystemError : kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == kSystemError ? "a fake system error" : result == kInvalidUsage ? "invalid usage" : "another error";
}

int ncclCommInitAll(Comm** comms, int count, const int* devices) {
  if (fails("ncclCommInitAll")) return kSystemError;
  if (std::set<int>(devices, devices + count).size() != static_cast<std::size_t>(count)) return kInvalidUsage;
  const auto clique = std::make_shared<Clique>(Clique{count});
  for (int rank = 0; rank < count; ++rank) live.insert(comms[rank] = new Comm{clique, rank});
  return kSuccess;
}

int ncclCommAbort(Comm* comm) {
  if (live.erase(comm) != 1) return kInvalidArgument;
  delete comm;
  return kSuccess;
}

int ncclCommGetAsyncError(Comm* comm, int* error) {
  *error = fails("asynchronous") ? kSystemError : kSuccess;
  return live.contains(comm) && !fails("ncclCommGetAsyncError") ? kSuccess : kInvalidArgument;
}

int ncclGroupStart() {
  if (fails("ncclGroupStart")) return kSystemError;
  ++depth;
  return kSuccess;
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root, Comm* comm,
               void* stream) {
  if (fails("ncclReduce")) return kSystemError;
  if (!live.contains(comm) || from == nullptr || stream == nullptr || type != kFloat || operation != kSum) {
    return kInvalidArgument;
  }
  if (depth == 0 && comm->clique->ranks > 1) return kInvalidUsage;  // the real one waits for ever
  group.push_back({static_cast<const float*>(from), static_cast<float*>(to), count, root, comm});
  return kSuccess;
}

int ncclGroupEnd() {
  if (depth-- != 1) return kInvalidUsage;
  const std::vector<Call> calls = std::move(group);
  group.clear();
  if (fails("ncclGroupEnd")) return kSystemError;
  std::map<const Clique*, std::vector<Call>> cliques;
  for (const Call& call : calls) cliques[call.comm->clique.get()].push_back(call);
  for (const auto& [clique, of_it] : cliques) {
    if (const int result = run(of_it); result != kSuccess) return result;
  }
  return kSuccess;
}

// For the tests: how many communicators there are, and whether a group is open.
int fake_nccl_live() { return static_cast<int>(live.size()); }
int fake_nccl_depth() { return depth; }

}  // extern "C"
