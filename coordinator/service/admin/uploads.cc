#include "coordinator/service/admin/uploads.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "core/identity/secret.h"

namespace fluvial::coordinator::admin {

Result<std::string> Uploads::begin(NodeId owner, std::string id, TimePoint now) {
  const auto of_owner = std::ranges::count_if(uploads_, [owner](const auto& one) { return one.second.owner == owner; });
  if (static_cast<std::size_t>(of_owner) >= kOfOneMax) {
    return Error{Code::kResourceExhausted,
                 "you have " + std::to_string(of_owner) +
                     " models on their way in: begin a run with one, or leave them alone for ten minutes"};
  }
  if (uploads_.size() >= kAtOnceMax) {
    return Error{Code::kResourceExhausted, "too many models are on their way in: try again later"};
  }
  const std::string path = path_of(id);
  uploads_.emplace(std::move(id), Upload{owner, 0, now});
  return path;
}

std::vector<std::string> Uploads::left_alone(TimePoint now) {
  std::vector<std::string> paths;
  std::erase_if(uploads_, [&](const auto& one) {
    if (now - one.second.touched < kLeftAlone) return false;
    paths.push_back(path_of(one.first));
    return true;
  });
  return paths;
}

Result<std::string> Uploads::part(NodeId owner, const std::string& id, std::uint64_t from, std::uint64_t size,
                                  TimePoint now) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.owner != owner) {
    return Error{Code::kNotFound, "you have no upload " + id + ": it was used, or given up"};
  }
  Upload& upload = found->second;
  if (from > upload.bytes) {
    return Error{Code::kInvalidArgument, "from = " + std::to_string(from) + ": expected at most " +
                                             std::to_string(upload.bytes) + ", which is what has come"};
  }
  if (from + size > kBytesMax) return Error{Code::kResourceExhausted, "a model of more than 64 GiB is not taken"};
  upload.bytes = std::max(upload.bytes, from + size);
  upload.touched = now;
  return path_of(id);
}

Result<std::string> Uploads::take(NodeId owner, const std::string& id) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.owner != owner) {
    return Error{Code::kNotFound, "you have no upload " + id + ": it was used, or given up"};
  }
  uploads_.erase(found);
  return path_of(id);
}

NodeId owner_of(const Call& call) { return call.caller.person ? call.caller.person->node : NodeId(0); }

Status sweep_uploads(store::FileSystem& files, const std::string& folder) {
  FLUVIAL_ASSIGN(const bool there, files.exists(folder));
  if (!there) return files.make_folder(folder);
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) FLUVIAL_TRY(files.remove(store::join_path(folder, name)));
  return {};
}

net::Awaitable<void> give_up_uploads(Context* admin) {
  const std::vector<std::string> paths = admin->uploads.left_alone(admin->runtime.clock.now());
  if (paths.empty()) co_return;
  const Status removed = co_await admin->runtime.pool.run([&]() -> Status {
    for (const std::string& path : paths) FLUVIAL_TRY(admin->runtime.files.remove(path));
    return {};
  });
  if (removed.ok()) co_return;
  admin->runtime.log.warn("a model that was left half sent could not be removed; the next start does",
                          {{"reason", removed.error().to_string()}});
}

namespace {

namespace json = boost::json;

constexpr std::uint64_t kDiskLeftBytes = 256u << 20;  // for the journal and the rounds

// Nothing is known of the disk: it says so itself when it is full.
Status check_room(const std::string& folder, std::uint64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info disk = std::filesystem::space(folder, error);
  if (error || disk.available >= bytes + kDiskLeftBytes) return {};
  return Error{Code::kResourceExhausted, "the coordinator's disk is too full for this model: " +
                                             std::to_string(disk.available >> 20) + " MiB are free in " + folder};
}

net::Awaitable<Reply> begin_upload(Context* admin, Call call) {
  co_await give_up_uploads(admin);
  const std::string id = to_hex(identity::Secret::random().bytes()).substr(0, 32);
  const NodeId owner = owner_of(call);
  const Result<std::string> path = admin->uploads.begin(owner, id, admin->runtime.clock.now());
  if (!path.ok()) co_return path.error();
  const Status made = co_await admin->runtime.pool.run([&]() -> Status {
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                   admin->runtime.files.open(*path, store::OpenMode::kTruncate));
    return {};
  });
  if (!made.ok()) {
    const Result<std::string> taken = admin->uploads.take(owner, id);
    (void)taken;  // its place is free again
    co_return made.error();
  }
  co_return json::serialize(json::object{{"upload", id}});
}

net::Awaitable<Reply> part(Context* admin, Call call) {
  const Result<std::uint64_t> from = call.number("from", 0);
  if (!from.ok()) co_return from.error();
  const std::string& bytes = call.request.body;
  const Result<std::string> path =
      admin->uploads.part(owner_of(call), call.names[0], *from, bytes.size(), admin->runtime.clock.now());
  if (!path.ok()) co_return path.error();
  const Status written = co_await admin->runtime.pool.run([&]() -> Status {
    FLUVIAL_TRY(check_room(admin->uploads.folder(), bytes.size()));
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                   admin->runtime.files.open(*path, store::OpenMode::kReadWrite));
    return file->write_at(*from, as_byte_span(bytes));
  });
  if (!written.ok()) co_return written.error();
  co_return json::serialize(json::object{{"bytes", *from + bytes.size()}});
}

}  // namespace

void add_uploads(Router& router) {
  router.post("/v1/uploads", begin_upload);
  router.put("/v1/uploads/{upload}", part);
}

}  // namespace fluvial::coordinator::admin
