// The verbs of every codec that this build knows: a codec that is added to the registry appears here by itself.
//
// encode             prepare() and encode_chunk() over all chunks, into memory that is there (fold() is not counted)
// encode_residual    the same with encode_residual_chunk(), the residual going elsewhere; with several passes, all of
//                    them on one site's own sums, and leave_chunk()
// decode             decode_chunk() into fp32
// accumulate         decode_add_chunk(): fp32 sum += weight * value
// decode_accumulate  decode_accumulate_chunk(): int64 sum += round(value * weight * 2^scale_bits)
// screen             screen_chunk(): what a receiver checks; only with --all or --codec
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"
#include "core/base/format.h"
#include "kernels/fixed.h"
#include "tests/bench/kernels_case.h"

namespace fluvial::bench {
namespace {

using kernels::Codec;
using kernels::CodecSpec;

// What is measured beside each codec as it comes. One that this build cannot parse is left out.
constexpr std::string_view kVariants[] = {"int8:rounding=nearest", "int4:rounding=nearest", "powersgd:rank=4"};

constexpr kernels::StreamKey kKey = {.run = 1, .round = 2, .site = 3};
constexpr std::uint32_t kWeight = 100;

enum class Verb { kEncode, kEncodeResidual, kEncodeInPlace, kDecode, kAccumulate, kDecodeAccumulate, kScreen };

// One codec and the normal values in one target's hands: what all of its cases share.
struct Encoding {
  std::unique_ptr<Codec> codec;
  std::array<std::uint64_t, 2> dims{};
  kernels::TensorShape tensor;
  kernels::VectorSchema schema;
  std::span<const float> values;
  MutableByteSpan state, workspace, reduced_bytes;
  kernels::EncodePlan plan;
  MutableByteSpan encoded;  // chunk i from i * stride on, sizes[i] bytes of it used
  std::size_t stride = 0;
  std::vector<std::size_t> sizes;

  ByteSpan chunk(std::size_t i) const { return ByteSpan(encoded).subspan(i * stride, sizes[i]); }
  MutableByteSpan room(std::size_t i) const { return encoded.subspan(i * stride, stride); }
  double bytes() const {
    double sum = 0;
    for (const std::size_t size : sizes) sum += static_cast<double>(size);
    return sum;
  }
};

void must(bool ok, const Codec& codec, std::string_view verb, const auto& result) {
  FLUVIAL_CHECK(ok, format_text("{} of {}: {}", verb, kernels::to_string(codec.spec()), result.error().message));
}

void prepare(Encoding& it, std::uint32_t pass, std::span<const float> reduced) {
  auto plan = it.codec->prepare(it.schema, it.values, kKey, {.pass = pass, .reduced = reduced}, it.state, it.workspace);
  must(plan.ok(), *it.codec, "prepare", plan);
  it.plan = *plan;
}

void encode_chunk(Encoding& it, std::size_t i) {
  const auto size = it.codec->encode_chunk(it.plan, i, it.plan.layout.of(it.plan.values, i), it.room(i));
  must(size.ok(), *it.codec, "encode", size);
  it.sizes[i] = *size;
}

// The two dimensions that a matrix codec cuts: as square as the count allows.
std::array<std::uint64_t, 2> matrix_of(std::uint64_t values) {
  auto rows = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(values)));
  while (values % rows != 0) --rows;
  return {rows, values / rows};
}

std::shared_ptr<Encoding> make_encoding(const Setup& setup, const CodecSpec& spec) {
  auto it = std::make_shared<Encoding>();
  it->codec = kernels::make_codec(spec, setup.target).value();
  it->dims = matrix_of(setup.values);
  it->tensor = {.dims = it->dims, .offset_values = 0};
  it->schema = {.layout = chunks_of(setup.values), .tensors = {&it->tensor, 1}};
  it->values = setup.memory.normals(setup.values);
  it->state = setup.memory.block("state", it->codec->state_bytes(it->schema));
  std::ranges::fill(it->state, std::byte{});
  it->workspace = setup.memory.block("workspace", it->codec->workspace_bytes(it->schema));
  std::size_t chunks = 0;
  for (std::uint32_t pass = 0; pass < it->codec->passes(); ++pass) {
    const kernels::ChunkLayout layout = it->codec->pass_layout(it->schema, pass);
    chunks = std::max(chunks, layout.chunk_count());
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      it->stride = std::max(it->stride, it->codec->encoded_bytes_max(layout.size(i)));
    }
  }
  it->stride = (it->stride + 63) / 64 * 64;
  it->sizes.assign(chunks, 0);
  it->encoded = setup.memory.block("encoded", it->stride * chunks, false);
  return it;
}

// What encoding gives after its only pass, with the residual fused or without.
Phase encode_chunks(const std::shared_ptr<Encoding>& it, std::span<float> residual, bool in_place) {
  const std::size_t chunks = it->schema.layout.chunk_count();
  return {.serial = [it] { prepare(*it, 0, {}); },
          .parts = chunks,
          .part =
              [it, residual, in_place](std::size_t i) {
                if (residual.empty()) return encode_chunk(*it, i);
                const std::span<float> rest = it->plan.layout.of(residual, i);
                const auto chunk = in_place ? rest : it->plan.layout.of(it->plan.values, i);
                const auto size = it->codec->encode_residual_chunk(it->plan, i, chunk, it->room(i), rest);
                must(size.ok(), *it->codec, "encode with residual", size);
                it->sizes[i] = *size;
              }};
}

// The phases of a codec with several passes: one after the other, then the residual. Between passes, what came back
// down is what this one sent up.
std::vector<Phase> pass_phases(const Setup& setup, const std::shared_ptr<Encoding>& it, std::span<float> residual,
                               bool in_place) {
  std::vector<Phase> phases;
  for (std::uint32_t pass = 0; pass < it->codec->passes(); ++pass) {
    std::span<float> reduced;
    if (pass > 0) reduced = setup.memory.of<float>("reduced", it->codec->pass_layout(it->schema, pass - 1).value_count);
    std::ranges::fill(reduced, 0.0F);
    prepare(*it, pass, reduced);  // for the number of its parts
    const auto start = [it, pass, reduced] {
      for (std::size_t i = 0; pass > 0 && i < it->plan.layout.chunk_count(); ++i) {
        const Status status = it->codec->decode_chunk(it->chunk(i), it->plan.layout.of(reduced, i));
        must(status.ok(), *it->codec, "decode", status);
      }
      prepare(*it, pass, reduced);
    };
    phases.push_back({.serial = start, .parts = it->plan.parts, .part = [it](std::size_t i) {
                        const Status status = it->codec->prepare_part(it->plan, i);
                        must(status.ok(), *it->codec, "part", status);
                      }});
    phases.push_back(
        {.serial = {}, .parts = it->plan.layout.chunk_count(), .part = [it](std::size_t i) { encode_chunk(*it, i); }});
  }
  if (residual.empty()) return phases;
  phases.push_back(
      {.serial = {}, .parts = it->schema.layout.chunk_count(), .part = [it, residual, in_place](std::size_t i) {
         const std::span<float> rest = it->schema.layout.of(residual, i);
         const Status status =
             it->codec->leave_chunk(it->plan, i, in_place ? rest : it->schema.layout.of(it->values, i), rest);
         must(status.ok(), *it->codec, "residual", status);
       }});
  return phases;
}

std::vector<Phase> encode_phases(const Setup& setup, const std::shared_ptr<Encoding>& it, std::span<float> residual,
                                 bool in_place) {
  if (it->codec->passes() > 1) return pass_phases(setup, it, residual, in_place);
  return {encode_chunks(it, residual, in_place)};
}

void run_once(const Setup& setup, const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    if (phase.serial) phase.serial();
    setup.crew.run(phase.parts, phase.part);
  }
}

double part_of_values_sent(const CodecSpec& spec) {
  switch (spec.kind) {
    case kernels::CodecKind::kTopk:
    case kernels::CodecKind::kRandk:
    case kernels::CodecKind::kDgc: return spec.ratio;
    default: return 1;
  }
}

Phase over_chunks(const std::shared_ptr<Encoding>& it, std::string_view verb,
                  std::function<Status(std::size_t)> chunk) {
  return {.serial = {},
          .parts = it->plan.layout.chunk_count(),
          .part = [it, verb, chunk = std::move(chunk)](std::size_t i) {
            const Status status = chunk(i);
            must(status.ok(), *it->codec, verb, status);
          }};
}

Result<Timed> time_reader(const Setup& setup, const std::shared_ptr<Encoding>& it, Verb verb) {
  run_once(setup, encode_phases(setup, it, {}, false));
  const auto count = static_cast<double>(it->plan.layout.value_count);
  const kernels::ChunkLayout chunks = it->plan.layout;
  const auto floats = setup.memory.of<float>("floats", it->plan.layout.value_count);
  const double sent = part_of_values_sent(it->codec->spec());
  if (verb == Verb::kDecode) {
    const auto decode = [it, chunks, floats](std::size_t i) {
      return it->codec->decode_chunk(it->chunk(i), chunks.of(floats, i));
    };
    return on_cpu(setup, {over_chunks(it, "decode", decode)}, it->bytes() + 4 * count);
  }
  if (verb == Verb::kAccumulate) {
    std::ranges::fill(floats, 0.0F);
    const auto add = [it, chunks, floats](std::size_t i) {
      return it->codec->decode_add_chunk(it->chunk(i), 0.5F, chunks.of(floats, i));
    };
    return on_cpu(setup, {over_chunks(it, "accumulate", add)}, it->bytes() + 8 * sent * count);
  }
  if (verb == Verb::kDecodeAccumulate) {
    const auto sum = setup.memory.of<std::int64_t>("sum", it->plan.layout.value_count);
    std::ranges::fill(sum, 0);
    const int scale_bits = kernels::scale_bits(40, 1024, std::uint64_t{64} * kWeight).value();
    const auto add = [it, chunks, sum, scale_bits](std::size_t i) {
      return it->codec->decode_accumulate_chunk(it->chunk(i), kWeight, scale_bits, chunks.of(sum, i));
    };
    return on_cpu(setup, {over_chunks(it, "decode_accumulate", add)}, it->bytes() + 16 * sent * count);
  }
  const auto screen = [it, chunks](std::size_t i) -> Status {
    const auto report = it->codec->screen_chunk(it->chunk(i), chunks.size(i), chunks.first_value(i));
    return report.ok() ? Status() : report.error();
  };
  return on_cpu(setup, {over_chunks(it, "screen", screen)}, it->bytes());
}

Result<Timed> time_verb(const Setup& setup, const CodecSpec& spec, Verb verb) {
  const auto it = make_encoding(setup, spec);
  const auto count = static_cast<double>(setup.values);
  if (verb == Verb::kEncode || verb == Verb::kEncodeResidual || verb == Verb::kEncodeInPlace) {
    std::span<float> residual;
    if (verb != Verb::kEncode) residual = setup.memory.of<float>("floats", setup.values);
    if (verb == Verb::kEncodeInPlace) std::ranges::copy(it->values, residual.begin());
    std::vector<Phase> phases = encode_phases(setup, it, residual, verb == Verb::kEncodeInPlace);
    run_once(setup, phases);  // so that the encoded bytes are known
    return on_cpu(setup, std::move(phases), it->bytes() + (residual.empty() ? 4 : 8) * count);
  }
  return time_reader(setup, it, verb);
}

// "int8:block=256,rounding=nearest" is "int8", "nearest": only what differs from the default is named.
struct Label {
  std::string codec;
  std::string rounding;
};

Label label_of(const CodecSpec& spec) {
  const auto options_of = [](const CodecSpec& of) {
    const std::string text = kernels::to_string(of);
    std::vector<std::string> options;
    for (std::size_t at = text.find(':'); at != std::string::npos;) {
      const std::size_t end = text.find(',', at + 1);
      options.push_back(text.substr(at + 1, end == std::string::npos ? end : end - at - 1));
      at = end;
    }
    return options;
  };
  const std::string text = kernels::to_string(spec);
  Label label = {.codec = text.substr(0, text.find(':')), .rounding = ""};
  const std::vector<std::string> usual = options_of(kernels::parse_codec(label.codec).value());
  char separator = ':';
  for (const std::string& option : options_of(spec)) {
    if (option.starts_with("rounding=")) {
      label.rounding = option.substr(9);
    } else if (std::ranges::find(usual, option) == usual.end()) {
      label.codec += separator + option;
      separator = ',';
    }
  }
  return label;
}

void add_cases(const CodecSpec& spec, bool is_default, std::vector<Case>& cases) {
  const Label label = label_of(spec);
  const auto add = [&](std::string kernel, Verb verb, bool in_default_run, bool writes) {
    cases.push_back({.kernel = std::move(kernel),
                     .codec = label.codec,
                     .rounding = writes ? label.rounding : "",
                     .in_default_run = in_default_run,
                     .make = [spec, verb](const Setup& setup) { return time_verb(setup, spec, verb); }});
  };
  const auto codec = kernels::make_codec(spec).value();
  add("encode", Verb::kEncode, true, true);
  if (!codec->lossless()) {
    add("encode_residual", Verb::kEncodeResidual, true, true);
    add("encode_residual_in_place", Verb::kEncodeInPlace, false, true);
  }
  // A variant's bytes read like those of the codec itself, unless something beside the rounding differs.
  if (!is_default && label.codec.find(':') == std::string::npos) return;
  add("decode", Verb::kDecode, true, false);
  add("accumulate", Verb::kAccumulate, true, false);
  add("decode_accumulate", Verb::kDecodeAccumulate, true, false);
  if (spec.kind != kernels::CodecKind::kFp32) add("screen", Verb::kScreen, false, false);
}

}  // namespace

std::vector<Case> codec_cases() {
  std::vector<Case> cases;
  const std::string names = kernels::codec_names();
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(", ", at), names.size());
    const std::string name = names.substr(at, end - at);
    add_cases(kernels::parse_codec(name).value(), true, cases);
    for (const std::string_view variant : kVariants) {
      if (!variant.starts_with(name + ":")) continue;
      const auto spec = kernels::parse_codec(variant);
      if (spec.ok()) add_cases(*spec, false, cases);
    }
    at = end + 2;
  }
  return cases;
}

}  // namespace fluvial::bench
