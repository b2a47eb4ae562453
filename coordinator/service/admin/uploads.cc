#include "coordinator/service/admin/uploads.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "core/base/printable.h"
#include "core/identity/secret.h"

namespace fluvial::coordinator::admin {

namespace {

std::string mebibytes(std::uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

}  // namespace

Result<Uploads::Begun> Uploads::begin(NodeId owner, const Declared& what, std::string id, TimePoint now) {
  if (what.bytes == 0) return Error{Code::kInvalidArgument, "bytes: expected the file's size"};
  std::size_t of_owner = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> whole;
  for (auto& [known, upload] : uploads_) {
    if (upload.owner != owner) continue;
    if (upload.declared == what) {
      upload.touched = now;
      return Begun{known, upload.received};
    }
    ++of_owner;
    bytes += upload.declared.bytes;
    if (!upload.is_busy && upload.received == upload.declared.bytes) whole.push_back(known);
  }
  const auto has_room = [&] { return bytes <= of_one_bytes_max_ && what.bytes <= of_one_bytes_max_ - bytes; };
  Begun begun{std::move(id), 0, true};
  for (const std::string& one : whole) {
    if (of_owner < kOfOneMax && has_room()) break;
    --of_owner;
    bytes -= uploads_.at(one).declared.bytes;
    begun.gave_way.push_back(one);
  }
  if (of_owner >= kOfOneMax) {
    return Error{Code::kResourceExhausted,
                 "you have " + std::to_string(of_owner) +
                     " models on their way in: begin a run with one, or leave them alone for ten minutes"};
  }
  if (uploads_.size() - begun.gave_way.size() >= kAtOnceMax) {
    return Error{Code::kResourceExhausted, "too many models are on their way in: try again later"};
  }
  if (!has_room()) {
    return Error{Code::kResourceExhausted, "a model of " + mebibytes(what.bytes) +
                                               ": what one operator has on its way in may have " +
                                               mebibytes(of_one_bytes_max_) + " (the setting upload_bytes_max), and " +
                                               mebibytes(bytes) + " of yours are on their way"};
  }
  for (std::string& one : begun.gave_way) {
    uploads_.erase(one);
    one = path_of(one);
  }
  uploads_.emplace(begun.id, Upload{.owner = owner, .declared = what, .touched = now, .is_busy = true});
  return begun;
}

std::vector<std::string> Uploads::left_alone(TimePoint now) {
  std::vector<std::string> paths;
  std::erase_if(uploads_, [&](const auto& one) {
    if (one.second.is_busy || now - one.second.touched < kLeftAlone) return false;
    paths.push_back(path_of(one.first));
    return true;
  });
  return paths;
}

Result<Uploads::Upload*> Uploads::find(NodeId owner, const std::string& id) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.owner != owner) {
    return Error{Code::kNotFound, "you have no upload " + printable(id, 64) + ": it was used, or given up"};
  }
  if (found->second.is_busy) return Error{Code::kUnavailable, "this upload is being written: ask again what has come"};
  return &found->second;
}

Result<Uploads::Place> Uploads::part(NodeId owner, const std::string& id, std::uint64_t from, std::uint64_t size) {
  FLUVIAL_ASSIGN(Upload* const upload, find(owner, id));
  if (from > upload->received) {
    return Error{Code::kInvalidArgument, "from = " + std::to_string(from) + ": expected at most " +
                                             std::to_string(upload->received) + ", which is what has come"};
  }
  if (size > upload->declared.bytes - from) {
    return Error{Code::kInvalidArgument,
                 "bytes beyond the " + std::to_string(upload->declared.bytes) + " that were declared"};
  }
  upload->is_busy = true;
  return Place{path_of(id), std::min(size, upload->received - from), &upload->digest};
}

Status Uploads::written(const std::string& id, std::uint64_t bytes, TimePoint now) {
  Upload& upload = uploads_.at(id);
  upload.is_busy = false;
  upload.touched = now;
  upload.received += bytes;
  if (bytes == 0 || upload.received < upload.declared.bytes) return {};
  if (upload.digest.finish() == upload.declared.sha256) return {};
  return Error{Code::kDataLoss,
               "the model that came is not the one that was declared: its SHA-256 differs; send it again"};
}

Result<std::string> Uploads::use(NodeId owner, const std::string& id) {
  FLUVIAL_ASSIGN(Upload* const upload, find(owner, id));
  if (upload->received < upload->declared.bytes) {
    return Error{Code::kFailedPrecondition, "of this upload " + std::to_string(upload->received) + " of " +
                                                std::to_string(upload->declared.bytes) + " bytes have come"};
  }
  upload->is_busy = true;
  return path_of(id);
}

void Uploads::kept(const std::string& id, TimePoint now) {
  Upload& upload = uploads_.at(id);
  upload.is_busy = false;
  upload.touched = now;
}

std::uint64_t Uploads::bytes_to_come() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, upload] : uploads_) bytes += upload.declared.bytes - upload.received;
  return bytes;
}

NodeId owner_of(const Call& call) { return call.caller.person ? call.caller.person->node : NodeId(0); }

Status sweep_uploads(store::FileSystem& files, const std::string& folder) {
  FLUVIAL_ASSIGN(const bool there, files.exists(folder));
  if (!there) return files.make_folder(folder);
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) FLUVIAL_TRY(files.remove(store::join_path(folder, name)));
  return {};
}

namespace {

namespace json = boost::json;

constexpr std::uint64_t kDiskLeftBytes = 256u << 20;  // for the journal and the rounds

// Nothing is known of the disk: it says so itself when it is full.
Status check_room(const std::string& folder, std::uint64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info disk = std::filesystem::space(folder, error);
  if (error || (disk.available >= kDiskLeftBytes && disk.available - kDiskLeftBytes >= bytes)) return {};
  return Error{Code::kResourceExhausted, "the coordinator's disk is too full for this model: it needs " +
                                             mebibytes(bytes) + " more, 256 MiB are to stay free, and " +
                                             mebibytes(disk.available) + " are free in " + folder};
}

net::Awaitable<void> remove_files(Context* admin, std::vector<std::string> paths) {
  if (paths.empty()) co_return;
  const Status removed = co_await admin->runtime.pool.run([&]() -> Status {
    for (const std::string& path : paths) FLUVIAL_TRY(admin->runtime.files.remove(path));
    return {};
  });
  if (removed.ok()) co_return;
  admin->runtime.log.warn("a model that was sent could not be removed; the next start does",
                          {{"path", paths.front()}, {"reason", removed.error().to_string()}});
}

net::Awaitable<void> drop(Context* admin, std::string id) {
  admin->uploads.drop(id);
  co_await remove_files(admin, {admin->uploads.path_of(id)});
}

Result<Uploads::Declared> declared_in(const std::string& body) {
  FLUVIAL_ASSIGN(const json::object object, parse_object(body));
  Uploads::Declared what;
  FLUVIAL_ASSIGN(what.bytes, number_of(object, "bytes", 0));
  FLUVIAL_ASSIGN(const std::string sha256, text_of(object, "sha256", ""));
  const Result<Digest> digest = digest_from_hex(sha256);
  if (!digest.ok()) return Error{Code::kInvalidArgument, "sha256: expected the file's SHA-256, 64 hexadecimal digits"};
  what.sha256 = *digest;
  return what;
}

net::Awaitable<Reply> begin_upload(Context* admin, Call call) {
  const Result<Uploads::Declared> what = declared_in(call.request.body);
  if (!what.ok()) co_return what.error();
  co_await give_up_uploads(admin);
  Uploads& uploads = admin->uploads;
  const Result<Uploads::Begun> begun = uploads.begin(
      owner_of(call), *what, to_hex(identity::Secret::random().bytes()).substr(0, 32), admin->runtime.clock.now());
  if (!begun.ok()) co_return begun.error();
  co_await remove_files(admin, begun->gave_way);
  if (begun->is_new) {
    const std::uint64_t room = uploads.bytes_to_come() + what->bytes;  // and the run's own copy
    const Status made = co_await admin->runtime.pool.run([&]() -> Status {
      FLUVIAL_TRY(check_room(uploads.folder(), room));
      FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                     admin->runtime.files.open(uploads.path_of(begun->id), store::OpenMode::kTruncate));
      return {};
    });
    if (!made.ok()) {
      uploads.drop(begun->id);
      co_return made.error();
    }
    uploads.kept(begun->id, admin->runtime.clock.now());
  }
  co_return json::serialize(json::object{{"upload", begun->id}, {"bytes", begun->received}});
}

net::Awaitable<Reply> part(Context* admin, Call call) {
  const Result<std::uint64_t> from = call.number("from", 0);
  if (!from.ok()) co_return from.error();
  const ByteSpan bytes = as_byte_span(call.request.body);
  const std::string& id = call.names[0];
  const Result<Uploads::Place> place = admin->uploads.part(owner_of(call), id, *from, bytes.size());
  if (!place.ok()) co_return place.error();
  const ByteSpan fresh = bytes.subspan(place->known);
  const Status written = co_await admin->runtime.pool.run([&]() -> Status {
    FLUVIAL_TRY(check_room(admin->uploads.folder(), fresh.size()));
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                   admin->runtime.files.open(place->path, store::OpenMode::kReadWrite));
    FLUVIAL_TRY(file->write_at(*from + place->known, fresh));
    place->digest->update(fresh);
    return {};
  });
  const Status taken = admin->uploads.written(id, written.ok() ? fresh.size() : 0, admin->runtime.clock.now());
  if (!taken.ok()) co_await drop(admin, id);
  if (!written.ok()) co_return written.error();
  if (!taken.ok()) co_return taken.error();
  co_return json::serialize(json::object{{"bytes", *from + bytes.size()}});
}

}  // namespace

net::Awaitable<void> give_up_uploads(Context* admin) {
  co_await remove_files(admin, admin->uploads.left_alone(admin->runtime.clock.now()));
}

net::Awaitable<void> end_use(Context* admin, std::string id, bool has_begun) {
  if (has_begun) co_return co_await drop(admin, std::move(id));
  admin->uploads.kept(id, admin->runtime.clock.now());
}

void add_uploads(Router& router) {
  router.post("/v1/uploads", begin_upload);
  router.put("/v1/uploads/{upload}", part);
}

}  // namespace fluvial::coordinator::admin
