// Writes the seeds of codec_fuzz, corpus/codec: one valid chunk of every codec and option that tests know, a few short
// ones, packed sums, states and codec texts. The same bytes every time.
//
//   codec_seeds FOLDER            writes them
//   codec_seeds --check FOLDER    fails when a file there is not as it would be written
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/testing.h"
#include "kernels/fixed.h"
#include "kernels/test_values.h"
#include "tests/fuzz/codec_input.h"

namespace fluvial::fuzz {
namespace {

using Seeds = std::map<std::string, std::string>;  // file name to content

std::string input_of(std::uint8_t reader, std::uint8_t choice, std::size_t value_count, ByteSpan chunk) {
  std::string input = {static_cast<char>(reader), static_cast<char>(choice), static_cast<char>(value_count & 0xff),
                       static_cast<char>(value_count >> 8)};
  for (const std::byte byte : chunk) input.push_back(static_cast<char>(byte));
  return input;
}

std::string name_of(std::string text, std::size_t value_count) {
  for (char& c : text) {
    if (c == ':' || c == ',' || c == '=') c = '-';
  }
  return text + "-" + std::to_string(value_count);
}

// Every pass of a codec, each with the mean of the pass before.
void add_chunks(const std::string& text, std::uint8_t choice, std::size_t value_count, Seeds& seeds) {
  const auto codec = kernels::test_values::codec_of(text);
  const auto vector = kernels::test_values::normals(value_count, 1);
  const std::uint64_t columns = value_count % 4 == 0 ? 4 : 1;
  const std::uint64_t dims[] = {value_count / columns, columns};
  const kernels::TensorShape tensor = {.dims = dims, .offset_values = 0};
  const kernels::VectorSchema schema = {.layout = {.value_count = value_count, .chunk_values = value_count},
                                        .tensors = {&tensor, 1}};
  Buffer state(codec->state_bytes(schema));
  Buffer workspace(codec->workspace_bytes(schema));
  std::ranges::fill(state.span(), std::byte{});
  std::vector<float> reduced;
  for (std::uint32_t pass = 0; pass < codec->passes(); ++pass) {
    const auto plan =
        codec->prepare(schema, vector, {1, 2, 3}, {.pass = pass, .reduced = reduced}, state.span(), workspace.span());
    for (std::size_t i = 0; i < plan->parts; ++i) {
      FLUVIAL_CHECK(codec->prepare_part(*plan, i).ok(), "each part is prepared");
    }
    reduced.assign(static_cast<std::size_t>(plan->layout.value_count), 0);
    if (reduced.empty()) continue;  // no matrix is large enough for a first pass
    const auto chunk = plan->layout.of(plan->values, 0);
    Buffer bytes(codec->encoded_bytes_max(chunk.size()));
    bytes.shrink(codec->encode_chunk(*plan, 0, chunk, bytes.span()).value());
    FLUVIAL_CHECK(codec->decode_chunk(bytes.span(), reduced).ok(), "what was encoded decodes");
    const std::string pass_name = pass == 0 ? "" : "-pass" + std::to_string(pass);
    seeds[name_of(text, value_count) + pass_name] =
        input_of(reader_of(codec->spec().kind), choice, chunk.size(), bytes.span());
  }
}

// Behind the zstd stage, stored and as a frame of one raw block (RFC 8878), written here: what the library's compressor
// gives depends on its version.
void add_zstd(const std::string& text, std::uint8_t choice, Seeds& seeds) {
  const std::string inner_text = text.substr(0, text.find("zstd=") - 1);
  const auto values = kernels::test_values::normals(20, 1);
  const auto encoded = kernels::test_values::encode(*kernels::test_values::codec_of(inner_text), values, values.size());
  const ByteSpan inner = encoded.chunks[0].span();
  FLUVIAL_CHECK(inner.size() < 256, "a frame that says its size in one byte");
  const auto size = static_cast<std::byte>(inner.size());
  const auto block = static_cast<std::uint16_t>(inner.size() << 3 | 1);  // the last, raw
  std::vector<std::byte> stored = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, size, {}, {}, {}};
  std::vector<std::byte> frame = {
      std::byte{1},    std::byte{1},    std::byte{1},    std::byte{0},    size,           {}, {}, {},
      std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd}, std::byte{0x20}};
  frame.insert(frame.end(), {size, static_cast<std::byte>(block & 0xff), static_cast<std::byte>(block >> 8), {}});
  stored.insert(stored.end(), inner.begin(), inner.end());
  frame.insert(frame.end(), inner.begin(), inner.end());
  const std::uint8_t reader = reader_of(kernels::parse_codec(text)->kind);
  for (const auto& [name, bytes] : {std::pair("-stored", &stored), std::pair("-frame", &frame)}) {
    std::vector<float> decoded(values.size());
    FLUVIAL_CHECK(kernels::test_values::codec_of(text)->decode_chunk(*bytes, decoded).ok(), "a seed decodes");
    seeds[name_of(text, values.size()) + name] = input_of(reader, choice, values.size(), *bytes);
  }
}

void add_codecs(Seeds& seeds) {
  std::map<kernels::CodecKind, std::uint8_t> variants;
  for (const std::string& text : codec_texts()) {
    const kernels::CodecKind kind = kernels::parse_codec(text)->kind;
    const std::uint8_t variant = variants[kind]++;
    const auto target = static_cast<std::uint8_t>(variants.size() % 3);
    const auto choice = static_cast<std::uint8_t>(target * kVariants + variant);
    if (kernels::parse_codec(text)->zstd_level != 0) {
      add_zstd(text, choice, seeds);
      continue;
    }
    add_chunks(text, choice, 136, seeds);
    if (variant == 0) {
      add_chunks(text, choice, 2, seeds);
      add_chunks(text, choice, 300, seeds);  // more than a block
    }
    seeds["text-" + name_of(text, 0)] = input_of(kReadSpecText, 0, 0, std::as_bytes(std::span(text)));
  }
}

void add_partials(Seeds& seeds) {
  for (const std::int64_t each : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1'000'000}, INT64_MAX / 2}) {
    for (const std::size_t step : {1, 9}) {  // every sum, or one in nine: dense and sparse
      std::vector<std::int64_t> sums(40, 0);
      for (std::size_t i = 0; i < sums.size(); i += step) sums[i] = each;
      std::vector<std::byte> bytes(kernels::packed_bytes_max(sums.size()));
      bytes.resize(kernels::pack_chunk(sums, bytes));
      seeds["partial-" + std::to_string(each) + "-" + std::to_string(step)] = input_of(kReadPartial, 0, 40, bytes);
    }
  }
}

int run(bool check, const std::filesystem::path& folder) {
  Seeds seeds;
  add_codecs(seeds);
  add_partials(seeds);
  int different = 0;
  for (const auto& [name, content] : seeds) {
    if (!check) {
      std::ofstream(folder / name, std::ios::binary) << content;
    } else if (text_of_file(folder / name) != content) {
      std::fprintf(stderr, "%s: not as it would be written; codec_seeds %s writes it\n", name.c_str(), folder.c_str());
      ++different;
    }
  }
  std::printf("%zu seeds\n", seeds.size());
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fluvial::fuzz

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::fprintf(stderr, "usage: codec_seeds [--check] FOLDER\n");
    return 2;
  }
  return fluvial::fuzz::run(check, argv[argc - 1]);
}
