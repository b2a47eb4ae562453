// Bytes that no encoder of ours writes: the device refuses what the CPU refuses and adds nothing of it, and whatever
// reads them touches no memory that is not its own.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/device_codec.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::Codec;
using kernels::DeviceCodec;
using kernels::test_values::normals;

constexpr std::uint64_t kFirstValue = 1'000'000;
constexpr std::uint32_t kWeight = 3;
constexpr int kScaleBits = 10;

// A vector on the device between guards that must stay as they are.
template <typename T>
class Guarded {
 public:
  static constexpr std::size_t kGuard = 64;
  Guarded(const Device& device, std::size_t size, T fill, Stream& stream)
      : expected_(size + 2 * kGuard, fill), vector_(device, std::span<const T>(expected_), stream) {}
  DeviceSpan<T> span() const { return vector_.span().subspan(kGuard, expected_.size() - 2 * kGuard); }
  // What is expected between the guards.
  std::span<T> expected() { return std::span(expected_).subspan(kGuard, expected_.size() - 2 * kGuard); }
  bool is_as_expected() const { return vector_.values() == expected_; }
  bool has_its_guards() const {
    const std::vector<T> values = vector_.values();
    const auto same = [&](std::size_t first) {
      return std::memcmp(values.data() + first, expected_.data() + first, kGuard * sizeof(T)) == 0;
    };
    return same(0) && same(values.size() - kGuard);
  }

 private:
  std::vector<T> expected_;
  OnDevice<T> vector_;
};

class Hostile {
 public:
  Hostile(const Context& context, const std::string& text, std::unique_ptr<DeviceCodec> device)
      : context_(context), text_(text), cpu_(kernels::test_values::codec_of(text)), device_(std::move(device)) {}

  void try_bytes(ByteSpan bytes, std::size_t n, const std::string& what) {
    const std::string name = text_ + ", " + what;
    const bool good = cpu_->screen_chunk(bytes, n, kFirstValue).ok();
    const OnDevice<std::byte> from(context_.device, bytes, stream_);
    const OnDevice<std::byte> workspace(context_.device, DeviceCodec::screen_workspace_bytes(n), stream_);
    const bool too_long = bytes.size() > device_->encoded_bytes_max(n);
    Status status = device_->screen_chunk(from.span(), n, kFirstValue, workspace.span(), outcome_, stream_);
    require(stream_.synchronize());
    const bool passed = status.ok() && device_->screened(*outcome_).ok();
    check(passed == (good && !too_long), name + (good ? ": refused" : ": passed"));

    Guarded<std::int64_t> sum(context_.device, n, 7, stream_);
    bool added = false;
    if (!too_long) added = cpu_->decode_accumulate_chunk(bytes, kWeight, kScaleBits, sum.expected()).ok() && good;
    status = device_->decode_accumulate_chunk(from.span(), kFirstValue, kWeight, kScaleBits, sum.span(),
                                              workspace.span(), outcome_, stream_);
    require(stream_.synchronize());
    check((status.ok() && device_->screened(*outcome_).ok()) == added, name + ": whether it was added");
    check(sum.is_as_expected(), name + ": the sum");
    if (++tried_ % 3 == 0) read(from.span(), n, name);
  }

 private:
  // These promise nothing about the values.
  void read(DeviceSpan<const std::byte> from, std::size_t n, const std::string& name) {
    const Guarded<float> out(context_.device, n, 0.5F, stream_);
    (void)device_->decode_chunk(from, out.span(), stream_);
    (void)device_->decode_add_chunk(from, 0.3F, out.span(), stream_);
    (void)device_->residual_chunk(out.span(), from, out.span(), stream_);
    require(stream_.synchronize());
    check(out.has_its_guards(), name + ": memory beside the values");
  }

  const Context& context_;
  std::string text_;
  std::unique_ptr<Codec> cpu_;
  std::unique_ptr<DeviceCodec> device_;
  Stream stream_ = require(Stream::make(context_.device));
  PinnedBuffer pinned_ = require(PinnedBuffer::make(context_.device, sizeof(ChunkOutcome)));
  ChunkOutcome* outcome_ = pinned_.as<ChunkOutcome>().data();
  std::size_t tried_ = 0;
};

std::vector<std::byte> chunk_of(const std::string& text, std::size_t n) {
  const auto codec = kernels::test_values::codec_of(text);
  const auto encoded = kernels::test_values::encode(*codec, normals(n, 8), n);
  const ByteSpan bytes = encoded.chunks[0].span();
  return {bytes.begin(), bytes.end()};
}

void other_lengths(Hostile& hostile, const std::string& text) {
  constexpr std::size_t kValues = 40;
  std::vector<std::byte> bytes = chunk_of(text, kValues);
  for (std::size_t size = 0; size <= bytes.size(); size += size < 24 || size + 8 > bytes.size() ? 1 : 7) {
    hostile.try_bytes(ByteSpan(bytes).first(size), kValues, "the first " + std::to_string(size) + " bytes");
  }
  hostile.try_bytes(bytes, kValues - 1, "a value less");
  bytes.push_back(std::byte{0});
  hostile.try_bytes(bytes, kValues, "a byte more");
}

// What a header, a scale, a count, an index or a value may be made to say.
void other_words(Hostile& hostile, const std::string& text, std::size_t n) {
  constexpr std::uint32_t kWords[] = {0x7fc00000U, 0x7f800000U, 0xff800000U, 0xffffffffU,
                                      0x80000000U, 0x7f7fffffU, 0x00000000U, 0x00000001U};
  std::vector<std::byte> bytes = chunk_of(text, n);
  const std::size_t words = bytes.size() / sizeof(std::uint32_t);
  for (std::size_t word = 0; word < words; word = word < 7 || word + 2 >= words ? word + 1 : words - 2) {
    const std::vector<std::byte> before = bytes;
    for (const std::uint32_t value : kWords) {
      std::memcpy(bytes.data() + 4 * word, &value, sizeof(value));
      hostile.try_bytes(bytes, n, "word " + std::to_string(word) + " is " + std::to_string(value));
    }
    bytes = before;
  }
}

void flipped_bits(Hostile& hostile, const std::string& text, std::size_t n, std::size_t rounds) {
  std::vector<std::byte> bytes = chunk_of(text, n);
  Rng rng(9);
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t all = 8 * bytes.size();
    const std::size_t bit = round < rounds / 2 ? rng.below(std::min<std::size_t>(all, 256)) : rng.below(all);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    hostile.try_bytes(bytes, n, "bit " + std::to_string(bit) + " flipped");
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

void any_bytes(Hostile& hostile, std::size_t rounds) {
  Rng rng(5);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<std::byte> bytes(rng.below(64));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(4) == 0 ? rng.below(256) : rng.below(3));
    hostile.try_bytes(bytes, 1 + rng.below(20), "random bytes " + std::to_string(round));
  }
}

// Forms of a list of indices that are near a right one (codecs/hostile_test.cc says what is wrong with each).
void lists_of_indices(Hostile& hostile) {
  for (const char* hex :
       {"02000000020000000000803f000020c003", "02010000020000000000803f000020c00203",
        "02000000050000000000803f000020c003", "02000000ffffffff0000803f000020c003",
        "021b0000020000000000803f000020c0ffffffffffff3f03", "02010000020000000000803f000020c0",
        "02000000020000000000803f000020c00300", "02000000000000000000", "02010000020000000000803f000020c00403",
        "02000000020000000000803f000020c001", "02000000020000000000803f000020c007",
        "02000000020000000000803f000020c011", "02000000020000000000803f000020c018",
        "02010000020000000000803f000020c00306", "021a0000020000000000803f000020c0ffffffffffff0f03"}) {
    hostile.try_bytes(from_hex(hex).value().span(), 4, hex);
  }
}

// As docs/formats/codecs-quantised.md has it, a bit at a time.
std::vector<std::byte> elias_stream(std::span<const std::int8_t> codes) {
  std::vector<std::byte> bytes;
  std::size_t bits = 0;
  const auto put = [&](bool one) {
    if (bits % 8 == 0) bytes.push_back(std::byte{0});
    if (one) bytes.back() |= static_cast<std::byte>(1 << (bits % 8));
    ++bits;
  };
  for (const int code : codes) {
    const auto v = static_cast<unsigned>(std::abs(code)) + 1;
    const int zeros = std::bit_width(v) - 1;
    for (int i = 0; i < zeros; ++i) put(false);
    put(true);
    for (int i = 0; i < zeros; ++i) put((v >> i & 1) != 0);
    if (code != 0) put(code < 0);
  }
  return bytes;
}

// qsgd in Elias-gamma form, of blocks of 128 values: 12 bytes, the steps, the streams' lengths, the streams.
struct EliasChunk {
  static constexpr std::size_t kBlock = 128, kSteps = 12;
  std::size_t blocks;
  std::vector<std::byte> bytes;

  explicit EliasChunk(std::span<const std::int8_t> codes)
      : blocks((codes.size() + kBlock - 1) / kBlock), bytes(streams(), std::byte{0}) {
    const std::array<std::uint32_t, 3> header = {0x00800101, static_cast<std::uint32_t>(codes.size()), 127};
    std::memcpy(bytes.data(), header.data(), sizeof(header));
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto of_block = codes.subspan(kBlock * block, std::min(kBlock, codes.size() - kBlock * block));
      const auto stream = elias_stream(of_block);
      const float step = 0.5F + static_cast<float>(block);
      std::memcpy(bytes.data() + kSteps + 4 * block, &step, sizeof(step));
      set_length(block, stream.size());
      bytes.insert(bytes.end(), stream.begin(), stream.end());
    }
  }
  std::size_t streams() const { return kSteps + 6 * blocks; }
  std::uint16_t length(std::size_t block) const {
    return load_le<std::uint16_t>(bytes.data() + kSteps + 4 * blocks + 2 * block);
  }
  void set_length(std::size_t block, std::size_t length) {
    store_le(bytes.data() + kSteps + 4 * blocks + 2 * block, static_cast<std::uint16_t>(length));
  }
};

std::vector<std::int8_t> drawn_codes(std::span<const std::int8_t> of, std::size_t n, Rng& rng) {
  std::vector<std::int8_t> codes(n);
  for (auto& code : codes) code = of[rng.below(of.size())];
  return codes;
}

// Streams in which a reader that begins in the middle finds out late, or never, where codes begin; tiles' borders.
void elias_streams(Hostile& hostile) {
  Rng rng(12);
  for (const std::vector<std::int8_t>& of :
       {std::vector<std::int8_t>{0}, {1}, {-1}, {3}, {-3}, {1, -1, 3}, {0, 0, 0, 127}, {0, 0, 0, -127, 63}, {7, 0}}) {
    for (const std::size_t n : {900UL, 5'001UL}) {
      const auto codes = drawn_codes(of, n, rng);
      hostile.try_bytes(EliasChunk(codes).bytes, n,
                        std::to_string(n) + " codes such as " + std::to_string(static_cast<int>(of[0])));
    }
  }
}

// Lengths of streams that lie, and bits that do.
void elias_lies(Hostile& hostile, std::size_t rounds) {
  constexpr std::size_t kValues = 4'700;
  Rng rng(13);
  const EliasChunk right(drawn_codes(std::array<std::int8_t, 6>{0, 0, 1, -1, 5, 0}, kValues, rng));
  for (const std::size_t block : {std::size_t{0}, std::size_t{31}, std::size_t{32}, right.blocks - 1}) {
    const std::string where = "stream " + std::to_string(block);
    for (const int more : {-1, 1, 0x7fff}) {
      EliasChunk chunk = right;
      chunk.set_length(block, chunk.length(block) + static_cast<std::size_t>(more));
      hostile.try_bytes(chunk.bytes, kValues, where + " says " + std::to_string(more) + " bytes more");
      const std::size_t other = block == 0 ? 1 : block - 1;  // the sum stays
      chunk.set_length(other, chunk.length(other) - static_cast<std::size_t>(more));
      hostile.try_bytes(chunk.bytes, kValues, where + " says " + std::to_string(more) + " bytes more, another less");
    }
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    EliasChunk chunk = right;
    const std::size_t byte = chunk.streams() + rng.below(chunk.bytes.size() - chunk.streams());
    chunk.bytes[byte] = round % 3 == 0 ? std::byte{0} : chunk.bytes[byte] ^ static_cast<std::byte>(1 << rng.below(8));
    hostile.try_bytes(chunk.bytes, kValues, "a byte of a stream, " + std::to_string(byte));
  }
}

void elias_refuses(const Context& context) {
  const char* const text = "qsgd:block=128";  // reads both forms, whichever it writes
  Hostile hostile(context, text, require(make_device_codec(context.device, kernels::parse_codec(text).value())));
  elias_streams(hostile);
  elias_lies(hostile, context.is_small ? 20 : 400);
}

void refuses_what_the_cpu_refuses(const Context& context, const std::string& text) {
  auto made = kernels::make_device_codec(context.device, kernels::parse_codec(text).value());
  if (!made.ok()) return;
  Hostile hostile(context, text, std::move(made).value());
  other_lengths(hostile, text);
  other_words(hostile, text, 300);
  flipped_bits(hostile, text, 300, context.is_small ? 60 : 400);
  any_bytes(hostile, context.is_small ? 30 : 400);
  if (text.starts_with("topk")) lists_of_indices(hostile);
}

}  // namespace

void add_hostile_tests(std::vector<Test>& tests) {
  for (const std::string& text : kernels::test_values::codec_texts()) {
    tests.push_back({text + ", hostile", [text](const Context& c) { refuses_what_the_cpu_refuses(c, text); }});
  }
  tests.push_back({"streams of Elias-gamma codes, hostile", elias_refuses});
}

}  // namespace fluvial::gpu_test
