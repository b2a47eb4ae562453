#include "cli/model_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "core/base/backoff.h"
#include "core/digest/sha256.h"
#include "core/store/model_source.h"

namespace fluvial::cli {
namespace {

constexpr std::uint64_t kPartBytes = 256 << 10;  // the coordinator waits ten seconds for one
constexpr std::uint64_t kHashedBytes = 1 << 20;
constexpr int kTriesMax = 10;  // that bring nothing further
constexpr BackoffSettings kPause{.first = std::chrono::milliseconds(500), .cap = std::chrono::seconds(10)};

Result<std::string> digest_of(store::File& file, std::uint64_t size, const std::string& path) {
  Sha256 digest;
  Buffer block(std::min(size, kHashedBytes));
  for (std::uint64_t from = 0; from < size; from += kHashedBytes) {
    const MutableByteSpan some = block.span().first(std::min(kHashedBytes, size - from));
    FLUVIAL_TRY(store::read_exactly(file, from, some, path));
    digest.update(some);
  }
  return to_hex(digest.finish());
}

// From `from` on, to the end or the first error.
Status send_parts(const AdminClient& client, store::File& file, const std::string& upload, std::uint64_t from,
                  std::uint64_t size, const UploadWords& words) {
  std::uint64_t next = from;
  std::uint64_t taken = from;
  const auto part = [&]() -> Result<std::optional<AdminClient::Request>> {
    if (next == size) return std::optional<AdminClient::Request>();
    AdminClient::Request made{"PUT", fmt::format("/v1/uploads/{}?from={}", upload, next),
                              std::string(std::min(kPartBytes, size - next), '\0')};
    FLUVIAL_TRY(store::read_exactly(file, next, std::as_writable_bytes(std::span(made.body)), "the model"));
    next += made.body.size();
    return std::optional(std::move(made));
  };
  return client.ask_all(part, [&](const std::string&) -> Status {
    taken = std::min(taken + kPartBytes, size);
    words.sent(taken, size);
    return {};
  });
}

bool may_go_on(const Error& error) { return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded; }

}  // namespace

Result<std::string> upload_model(const AdminClient& client, store::FileSystem& files, const std::string& path,
                                 const UploadWords& words) {
  FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file, store::open_to_send(files, path));
  if (const auto header = store::read_stored_header(*file, path); !header.ok()) return header.error();
  FLUVIAL_ASSIGN(const std::uint64_t size, file->size());
  FLUVIAL_ASSIGN(const std::string digest, digest_of(*file, size, path));
  const json::object declared{{"bytes", size}, {"sha256", digest}};
  Backoff pause(kPause, Rng(size));
  std::optional<std::uint64_t> furthest;
  for (int tries = 0;;) {
    const auto begun = client.post("/v1/uploads", declared);
    Status sent = begun.ok() ? Status() : Status(begun.error());
    if (begun.ok()) {
      const std::string upload = text_member(*begun, "upload");
      const std::uint64_t received = std::min(count_member(*begun, "bytes"), size);
      if (!furthest || received > *furthest) tries = 0, pause.reset();
      furthest = received;
      sent = send_parts(client, *file, upload, received, size, words);
      if (sent.ok()) return upload;
    }
    if (!furthest || !may_go_on(sent.error()) || ++tries == kTriesMax) return sent.error();
    const Duration wait = pause.next();
    words.cut(sent.error(), wait);
    std::this_thread::sleep_for(wait);
  }
}

}  // namespace fluvial::cli
