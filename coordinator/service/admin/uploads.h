// Models on their way in from other machines: files in a folder of the coordinator's, written part by part, until a run
// begins with one. On the node's strand; what blocks takes paths and is for the pool.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/net/awaitable.h"
#include "core/store/file_system.h"

namespace fluvial::coordinator::admin {

class Uploads {
 public:
  static constexpr std::size_t kAtOnceMax = 4;
  static constexpr std::size_t kOfOneMax = 2;                          // of one owner
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 30;  // of one
  static constexpr Duration kLeftAlone = std::chrono::minutes(10);     // then it is given up

  explicit Uploads(std::string folder = {}) : folder_(std::move(folder)) {}

  // The path. After left_alone(). kResourceExhausted: too many at once.
  Result<std::string> begin(NodeId owner, std::string id, TimePoint now);
  // Gives up uploads that nobody has written to within the limit. Returns their paths, to be removed.
  std::vector<std::string> left_alone(TimePoint now);
  // Where a part of `size` bytes at `from` goes. Parts come in order; the last one may come again.
  // kNotFound: no such upload of this owner's; kInvalidArgument: a gap; kResourceExhausted: too large.
  Result<std::string> part(NodeId owner, const std::string& id, std::uint64_t from, std::uint64_t size, TimePoint now);
  Result<std::string> take(NodeId owner, const std::string& id);  // it is no upload any more; its path

  const std::string& folder() const { return folder_; }

 private:
  struct Upload {
    NodeId owner;  // 0: a user of the machine
    std::uint64_t bytes = 0;
    TimePoint touched;
  };
  std::string path_of(const std::string& id) const { return store::join_path(folder_, id); }
  std::string folder_;
  std::map<std::string, Upload> uploads_;
};

struct Call;
struct Context;
NodeId owner_of(const Call& call);
net::Awaitable<void> give_up_uploads(Context* admin);  // those left alone, with their files

// Removes what a process before left in the folder. Blocking.
Status sweep_uploads(store::FileSystem& files, const std::string& folder);

}  // namespace fluvial::coordinator::admin
