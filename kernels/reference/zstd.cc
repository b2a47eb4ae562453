#include "kernels/reference/zstd.h"

#include "kernels/reference/reader.h"

#if defined(FLUVIAL_HAVE_ZSTD)
#include <zstd.h>
#endif

namespace fluvial::kernels::reference {
namespace {

constexpr std::size_t kSizeMax = std::size_t{1} << 30;

std::optional<std::vector<std::byte>> read_frame([[maybe_unused]] ByteSpan frame, [[maybe_unused]] std::size_t size) {
#if defined(FLUVIAL_HAVE_ZSTD)
  if (size > kSizeMax || ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) return std::nullopt;
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) return std::nullopt;
  std::vector<std::byte> content(size + 1);  // a byte more, to see one too many
  if (ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size()) != size) return std::nullopt;
  content.pop_back();
  return content;
#else
  return std::nullopt;
#endif
}

}  // namespace

bool asks_for_zstd(std::string_view codec) {
  const std::size_t at = codec.find("zstd=");
  return at != std::string_view::npos && codec.substr(at + 5, 1) != "0";
}

std::optional<std::vector<std::byte>> open_zstd(ByteSpan bytes) {
  Reader reader{.bytes = bytes};
  const std::uint64_t version = reader.unsigned_of(1);
  const std::uint64_t form = reader.unsigned_of(1);
  const std::uint64_t planes = reader.unsigned_of(1);
  const std::uint64_t zero = reader.unsigned_of(1);
  const std::uint64_t size = reader.unsigned_of(4);
  if (!reader.ok || version != 1 || form > 1 || zero != 0) return std::nullopt;
  const ByteSpan rest = bytes.subspan(8);
  if (form == 0) {
    if (planes != 0 || rest.size() != size) return std::nullopt;
    return std::vector<std::byte>(rest.begin(), rest.end());
  }
  if ((planes != 1 && planes != 2 && planes != 4) || size % planes != 0) return std::nullopt;
  if (reader.unsigned_of(4) != 0xFD2FB528U) return std::nullopt;
  const auto content = read_frame(rest, static_cast<std::size_t>(size));
  if (!content) return std::nullopt;
  std::vector<std::byte> inner(content->size());
  const std::size_t each = content->size() / static_cast<std::size_t>(planes);
  for (std::size_t i = 0; i < content->size(); ++i) inner[i % each * planes + i / each] = (*content)[i];
  return inner;
}

}  // namespace fluvial::kernels::reference
