#include "examples/digits/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/rng.h"
#include "examples/digits/gzip.h"

namespace fluvial::digits {
namespace {

constexpr std::size_t kCsvBytesMax = 64 << 20;
constexpr std::size_t kCsvInputs = 64;
constexpr unsigned kCsvPixelMax = 16;

constexpr std::uint32_t kIdxImagesMagic = 0x803;  // unsigned bytes in 3 dimensions
constexpr std::uint32_t kIdxLabelsMagic = 0x801;  // in 1
constexpr std::uint32_t kIdxImagesMax = 1'000'000;
constexpr std::uint32_t kIdxSideMax = 256;
constexpr std::uint64_t kIdxBytesMax = std::uint64_t{1} << 30;

constexpr std::size_t kHeldOutPerClass = 36;
constexpr std::uint64_t kHeldOutSeed = 0x6469676974732031;  // never changes: results stay comparable

// Removes "7," or the last "7" from the line's front and returns the number; none if it is no number up to `value_max`.
std::optional<unsigned> take_number(std::string_view& line, bool last, unsigned value_max) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || value > value_max) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (last) return line.empty() ? std::optional(value) : std::nullopt;
  if (line.empty() || line.front() != ',') return std::nullopt;
  line.remove_prefix(1);
  return value;
}

bool parse_line(std::string_view line, Examples& examples) {
  for (std::size_t pixel = 0; pixel < kCsvInputs; ++pixel) {
    const std::optional<unsigned> value = take_number(line, false, kCsvPixelMax);
    if (!value) return false;
    examples.pixels.push_back(static_cast<float>(*value) / static_cast<float>(kCsvPixelMax));
  }
  const std::optional<unsigned> label = take_number(line, true, kClasses - 1);
  if (!label) return false;
  examples.labels.push_back(static_cast<std::uint8_t>(*label));
  return true;
}

std::uint32_t load_be(const std::byte* from) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(from[i]);
  return value;
}

Error bad_idx(const std::filesystem::path& file, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("{}: {}", file.native(), what)};
}

Status expect_end(GzipReader& reader, const std::filesystem::path& file) {
  if (!reader.read_rest(0).ok()) return bad_idx(file, "goes on after the last value its header announces");
  return {};
}

Result<Buffer> read_idx_labels(const std::filesystem::path& file, std::uint32_t expected_count) {
  FLUVIAL_ASSIGN(GzipReader reader, GzipReader::open(file));
  std::array<std::byte, 8> header;
  FLUVIAL_TRY(reader.read_exactly(header));
  if (load_be(header.data()) != kIdxLabelsMagic) return bad_idx(file, "is no idx1-ubyte file");
  if (const std::uint32_t count = load_be(header.data() + 4); count != expected_count) {
    return bad_idx(file, fmt::format("{} labels for {} images", count, expected_count));
  }
  Buffer labels(expected_count);
  FLUVIAL_TRY(reader.read_exactly(labels.span()));
  FLUVIAL_TRY(expect_end(reader, file));
  for (const std::byte label : labels.span()) {
    if (std::to_integer<unsigned>(label) >= kClasses) return bad_idx(file, "a label above 9");
  }
  return labels;
}

// The images of each digit in the order of a hash of their place; the first ones are held out.
Data hold_out(const Examples& all) {
  std::array<std::vector<std::pair<std::uint64_t, std::uint32_t>>, kClasses> by_class;
  for (std::uint32_t i = 0; i < all.count(); ++i) {
    by_class[all.labels[i]].emplace_back(Rng(kHeldOutSeed + i).next(), i);
  }
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> test;
  for (auto& images : by_class) {
    std::sort(images.begin(), images.end());
    const std::size_t held_out = std::min(kHeldOutPerClass, images.size() / 4);
    for (std::size_t i = 0; i < images.size(); ++i) (i < held_out ? test : train).push_back(images[i].second);
  }
  std::sort(train.begin(), train.end());
  std::sort(test.begin(), test.end());
  return {all.part(train), all.part(test)};
}

std::filesystem::path plain_or_gz(const std::filesystem::path& file) {
  std::filesystem::path packed = file;
  packed += ".gz";
  std::error_code ignored;
  return std::filesystem::exists(packed, ignored) ? packed : file;
}

}  // namespace

Examples Examples::part(std::span<const std::uint32_t> indices) const {
  Examples some{.inputs = inputs, .pixels = {}, .labels = {}};
  some.pixels.reserve(indices.size() * inputs);
  some.labels.reserve(indices.size());
  for (const std::uint32_t index : indices) {
    const std::span<const float> pixels_of = image(index);
    some.pixels.insert(some.pixels.end(), pixels_of.begin(), pixels_of.end());
    some.labels.push_back(labels[index]);
  }
  return some;
}

Result<Examples> read_digits_csv(const std::filesystem::path& file) {
  FLUVIAL_ASSIGN(GzipReader reader, GzipReader::open(file));
  FLUVIAL_ASSIGN(const std::string text, reader.read_rest(kCsvBytesMax));
  Examples examples{.inputs = kCsvInputs, .pixels = {}, .labels = {}};
  std::string_view rest = text;
  for (std::size_t line_number = 1; !rest.empty(); ++line_number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!parse_line(line, examples)) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{}:{}: expected {} pixels of 0 to {} and a digit, comma separated", file.native(),
                               line_number, kCsvInputs, kCsvPixelMax)};
    }
  }
  if (examples.count() == 0) return Error{Code::kInvalidArgument, fmt::format("{}: no images", file.native())};
  return examples;
}

Result<Examples> read_idx(const std::filesystem::path& images, const std::filesystem::path& labels) {
  FLUVIAL_ASSIGN(GzipReader reader, GzipReader::open(images));
  std::array<std::byte, 16> header;
  FLUVIAL_TRY(reader.read_exactly(header));
  if (load_be(header.data()) != kIdxImagesMagic) return bad_idx(images, "is no idx3-ubyte file");
  const std::uint32_t count = load_be(header.data() + 4);
  const std::uint32_t rows = load_be(header.data() + 8);
  const std::uint32_t columns = load_be(header.data() + 12);
  if (count == 0 || count > kIdxImagesMax || rows == 0 || rows > kIdxSideMax || columns == 0 || columns > kIdxSideMax ||
      std::uint64_t{count} * rows * columns > kIdxBytesMax) {
    return bad_idx(
        images, fmt::format("{} images of {} x {} pixels; expected 1 to {} of at most {} x {}, {} bytes in all", count,
                            rows, columns, kIdxImagesMax, kIdxSideMax, kIdxSideMax, kIdxBytesMax));
  }
  Buffer bytes(std::size_t{count} * rows * columns);
  FLUVIAL_TRY(reader.read_exactly(bytes.span()));
  FLUVIAL_TRY(expect_end(reader, images));
  FLUVIAL_ASSIGN(const Buffer label_bytes, read_idx_labels(labels, count));

  Examples examples{.inputs = std::size_t{rows} * columns, .pixels = {}, .labels = {}};
  examples.pixels.resize(bytes.size());
  examples.labels.resize(count);
  std::ranges::transform(bytes.span(), examples.pixels.begin(),
                         [](std::byte pixel) { return static_cast<float>(std::to_integer<unsigned>(pixel)) / 255.0F; });
  std::ranges::transform(label_bytes.span(), examples.labels.begin(),
                         [](std::byte label) { return std::to_integer<std::uint8_t>(label); });
  return examples;
}

Result<Data> load_data(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    FLUVIAL_ASSIGN(const Examples all, read_digits_csv(path));
    return hold_out(all);
  }
  FLUVIAL_ASSIGN(Examples train, read_idx(plain_or_gz(path / "train-images-idx3-ubyte"),
                                          plain_or_gz(path / "train-labels-idx1-ubyte")));
  FLUVIAL_ASSIGN(Examples test,
                 read_idx(plain_or_gz(path / "t10k-images-idx3-ubyte"), plain_or_gz(path / "t10k-labels-idx1-ubyte")));
  if (train.inputs != test.inputs) return bad_idx(path, "images to train on and to test on differ in size");
  return Data{std::move(train), std::move(test)};
}

}  // namespace fluvial::digits
