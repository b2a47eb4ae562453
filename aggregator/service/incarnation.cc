#include "aggregator/service/incarnation.h"

#include "core/base/bytes.h"

namespace fluvial::aggregator {
namespace {

constexpr std::uint64_t kFileBytes = 8;
constexpr std::uint64_t kFileBytesRead = 64;                        // more is no file of ours
constexpr std::uint64_t kIncarnationsMax = std::uint64_t{1} << 32;  // a start a second for a hundred years

Result<std::uint64_t> incarnation_in(store::FileSystem& files, const std::string& path) {
  const Result<Buffer> bytes = store::read_file(files, path, kFileBytesRead);
  if (!bytes.ok() && bytes.error().code == Code::kNotFound) return std::uint64_t{0};
  if (!bytes.ok() && bytes.error().code != Code::kInvalidArgument) return bytes.error();
  const bool is_whole = bytes.ok() && bytes->size() == kFileBytes;
  const std::uint64_t count = is_whole ? load_le<std::uint64_t>(bytes->data()) : 0;
  if (count >= 1 && count < kIncarnationsMax) return count;
  return Error{Code::kDataLoss, path +
                                    " is damaged: it holds no incarnation. Make sure that no other process of this "
                                    "aggregator runs, and remove the file: it then begins at 1 again"};
}

}  // namespace

Result<Incarnation> next_incarnation(store::FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(const std::uint64_t before, incarnation_in(files, path));
  std::byte bytes[kFileBytes];
  store_le<std::uint64_t>(bytes, before + 1);
  const ByteSpan parts[] = {ByteSpan(bytes)};
  FLUVIAL_TRY(store::write_file_atomically(files, path, parts));
  return Incarnation(before + 1);
}

}  // namespace fluvial::aggregator
