// Models on their way in from other machines: files in a folder of the coordinator's, written part by part, until a run
// begins with one. Each is declared first, with its size and digest: so it is refused before its first byte, goes on
// where a connection was cut, and is checked once it is whole. On the node's strand; what blocks takes paths and is for
// the pool.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/digest/sha256.h"
#include "core/net/awaitable.h"
#include "core/store/file_system.h"

namespace fluvial::coordinator::admin {

class Uploads {
 public:
  static constexpr std::size_t kAtOnceMax = 4;
  static constexpr std::size_t kOfOneMax = 2;                       // of one owner
  static constexpr Duration kLeftAlone = std::chrono::minutes(10);  // then it is given up

  // `of_one_bytes_max`: of those of one owner together.
  explicit Uploads(std::string folder = {}, std::uint64_t of_one_bytes_max = std::uint64_t{1} << 40)
      : folder_(std::move(folder)), of_one_bytes_max_(of_one_bytes_max) {}

  struct Declared {
    std::uint64_t bytes = 0;
    Digest sha256{};
    bool operator==(const Declared&) const = default;
  };
  struct Begun {
    std::string id;
    std::uint64_t received = 0;
    bool is_new = false;
    std::vector<std::string> gave_way = {};  // paths, to be removed
  };
  // After left_alone(). Of an owner who declares the same again the upload that there is, as far as it has come; else a
  // new one, `id`, busy until kept() or drop(), to which the owner's whole ones give way, with which no run could
  // begin. kInvalidArgument: no bytes; kResourceExhausted: too many at once, or too much.
  Result<Begun> begin(NodeId owner, const Declared& what, std::string id, TimePoint now);
  // Gives up uploads that nobody has written to within the limit. Returns their paths, to be removed.
  std::vector<std::string> left_alone(TimePoint now);
  void drop(const std::string& id) { uploads_.erase(id); }

  // Parts come in order, and one at a time: until written() the upload is busy. Of a part that came in another
  // connection already what is new is written, and goes into `digest`: where a digest is known, nothing changes.
  struct Place {
    std::string path;
    std::uint64_t known = 0;   // of the part's first bytes: here already
    Sha256* digest = nullptr;  // until written()
  };
  // kNotFound: no such upload of this owner's; kInvalidArgument: a gap, or beyond the declared size; kUnavailable:
  // busy.
  Result<Place> part(NodeId owner, const std::string& id, std::uint64_t from, std::uint64_t size);
  // So many new bytes are there; 0: it failed. kDataLoss: it is whole and not what was declared; drop it.
  Status written(const std::string& id, std::uint64_t bytes, TimePoint now);

  // A run is about to begin with it: its path. Busy until drop() or kept(). kFailedPrecondition: it is not whole.
  Result<std::string> use(NodeId owner, const std::string& id);
  void kept(const std::string& id, TimePoint now);  // it waits for what comes next

  std::string path_of(const std::string& id) const { return store::join_path(folder_, id); }
  const std::string& folder() const { return folder_; }
  std::uint64_t bytes_to_come() const;  // of all

 private:
  struct Upload {
    NodeId owner;  // 0: a user of the machine
    Declared declared;
    TimePoint touched;
    std::uint64_t received = 0;
    bool is_busy = false;
    Sha256 digest = {};
  };
  Result<Upload*> find(NodeId owner, const std::string& id);

  std::string folder_;
  std::uint64_t of_one_bytes_max_;
  std::map<std::string, Upload> uploads_;
};

struct Call;
struct Context;
NodeId owner_of(const Call& call);
net::Awaitable<void> give_up_uploads(Context* admin);  // those left alone, with their files
// Of an upload in use(). Where the run could not begin (its plan is wrong, another one is active) the upload stays for
// a while, and whoever tries again sends nothing.
net::Awaitable<void> end_use(Context* admin, std::string id, bool has_begun);

// Removes what a process before left in the folder. Blocking.
Status sweep_uploads(store::FileSystem& files, const std::string& folder);

}  // namespace fluvial::coordinator::admin
