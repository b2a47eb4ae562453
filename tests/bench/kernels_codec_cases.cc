// The verbs of every codec that this build knows: a codec that is added to the registry appears here by itself.
//
// encode             survey(), prepare() and encode_chunk() over all chunks, into existing memory, without fold()
// encode_residual    the same with encode_residual_chunk(), the residual going elsewhere
// decode             decode_chunk() into fp32
// accumulate         decode_add_chunk(): fp32 sum += weight * value
// decode_accumulate  decode_accumulate_chunk(): int64 sum += round(value * weight * 2^scale_bits)
// screen             screen_chunk(), the receiver's check; only with --all or --codec
//
// A codec with several passes goes through all of them; its residual is leave_chunk(), and decode() includes the
// expansion to the vector. Values are always those of the vector (`d`), however few travel.
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

// Variants that are measured in addition to each codec's default. One that this build cannot parse is left out.
constexpr std::string_view kVariants[] = {"int8:rounding=nearest", "int4:rounding=nearest", "qsgd:encoding=elias",
                                          "ring:bits=16,max=0.05", "powersgd:rank=4"};

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
  MutableByteSpan state, workspace;
  kernels::EncodePlan plan;  // of the pass that was prepared last
  MutableByteSpan encoded;   // slot i from i * stride on, sizes[i] bytes of it used
  std::size_t stride = 0;
  std::vector<std::size_t> sizes;

  kernels::ChunkLayout layout(std::uint32_t pass) const { return codec->pass_layout(schema, pass); }
  // A slot for each chunk of each pass.
  std::size_t slots_before(std::uint32_t pass) const {
    std::size_t slots = 0;
    for (std::uint32_t i = 0; i < pass; ++i) slots += layout(i).chunk_count();
    return slots;
  }
  ByteSpan chunk(std::size_t slot) const { return ByteSpan(encoded).subspan(slot * stride, sizes[slot]); }
  MutableByteSpan room(std::size_t slot) const { return encoded.subspan(slot * stride, stride); }
  double bytes() const {
    double sum = 0;
    for (const std::size_t size : sizes) sum += static_cast<double>(size);
    return sum;
  }
};
using Shared = std::shared_ptr<Encoding>;

void must(bool ok, const Codec& codec, std::string_view verb, const auto& result) {
  FLUVIAL_CHECK(ok, format_text("{} of {}: {}", verb, kernels::to_string(codec.spec()), result.error().message));
}

// The two dimensions that a matrix codec cuts: as square as the count allows.
std::array<std::uint64_t, 2> matrix_of(std::uint64_t values) {
  auto rows = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(values)));
  while (values % rows != 0) --rows;
  return {rows, values / rows};
}

Shared make_encoding(const Setup& setup, const CodecSpec& spec) {
  auto it = std::make_shared<Encoding>();
  it->codec = kernels::make_codec(spec, setup.target).value();
  it->dims = matrix_of(setup.values);
  it->tensor = {.dims = it->dims, .offset_values = 0};
  it->schema = {.layout = chunks_of(setup.values), .tensors = {&it->tensor, 1}};
  it->values = setup.memory.normals(setup.values);
  it->state = setup.memory.block("state", it->codec->state_bytes(it->schema));
  std::ranges::fill(it->state, std::byte{});
  it->workspace = setup.memory.block("workspace", it->codec->workspace_bytes(it->schema));
  for (std::uint32_t pass = 0; pass < it->codec->passes(); ++pass) {
    const kernels::ChunkLayout layout = it->layout(pass);
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      it->stride = std::max(it->stride, it->codec->encoded_bytes_max(layout.size(i)));
    }
  }
  it->stride = (it->stride + 63) / 64 * 64;
  it->sizes.assign(it->slots_before(it->codec->passes()), 0);
  it->encoded = setup.memory.block("encoded", it->stride * it->sizes.size(), false);
  return it;
}

// The mean of a pass, as it would come back down: here, what the one site sent.
std::span<float> mean_of_pass(const Setup& setup, const Encoding& it, std::uint32_t pass) {
  return setup.memory.of<float>(pass == 0 ? "mean0" : "mean1", it.layout(pass).value_count);
}

void decode_pass(const Encoding& it, std::uint32_t pass, std::span<float> out) {
  const kernels::ChunkLayout layout = it.layout(pass);
  const std::size_t first = it.slots_before(pass);
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const Status status = it.codec->decode_chunk(it.chunk(first + i), layout.of(out, i));
    must(status.ok(), *it.codec, "decode", status);
  }
}

// The pass over the vector that some codecs share among threads before the first prepare().
Phase survey_chunks(const Shared& it) {
  const auto survey = [it] {
    const Status status = it->codec->survey(it->schema, it->values, kKey, it->workspace);
    must(status.ok(), *it->codec, "survey", status);
  };
  const auto survey_chunk = [it](std::size_t i) {
    const auto chunk = it->schema.layout.of(it->values, i);
    const Status status = it->codec->survey_chunk(it->schema, kKey, i, chunk, it->workspace);
    must(status.ok(), *it->codec, "survey a chunk", status);
  };
  return {.serial = survey, .parts = it->schema.layout.chunk_count(), .part = survey_chunk};
}

// One pass: prepare (with the mean of the pass before), its parts, the chunks.
void add_pass(const Setup& setup, const Shared& it, std::uint32_t pass, std::span<float> residual, bool in_place,
              std::vector<Phase>& phases) {
  std::span<float> mean;
  if (pass > 0) mean = mean_of_pass(setup, *it, pass - 1);
  const auto prepare = [it, pass, mean] {
    if (pass > 0) decode_pass(*it, pass - 1, mean);
    const kernels::PassInput input = {.pass = pass, .reduced = mean, .surveyed = pass == 0};
    auto plan = it->codec->prepare(it->schema, it->values, kKey, input, it->state, it->workspace);
    must(plan.ok(), *it->codec, "prepare", plan);
    it->plan = *plan;
  };
  const auto part = [it](std::size_t i) {
    const Status status = it->codec->prepare_part(it->plan, i);
    must(status.ok(), *it->codec, "part of prepare", status);
  };
  if (pass == 0) phases.push_back(survey_chunks(it));
  phases.push_back({.serial = prepare, .part = part, .count = [it] { return it->plan.parts; }});
  const auto encode = [it, residual, in_place, first = it->slots_before(pass)](std::size_t i) {
    const auto chunk = it->plan.layout.of(it->plan.values, i);
    const auto rest = residual.empty() ? residual : it->plan.layout.of(residual, i);
    const auto size = residual.empty() ? it->codec->encode_chunk(it->plan, i, chunk, it->room(first + i))
                                       : it->codec->encode_residual_chunk(it->plan, i, in_place ? rest : chunk,
                                                                          it->room(first + i), rest);
    must(size.ok(), *it->codec, "encode", size);
    it->sizes[first + i] = *size;
  };
  phases.push_back({.serial = {}, .parts = it->layout(pass).chunk_count(), .part = encode});
}

std::vector<Phase> encode_phases(const Setup& setup, const Shared& it, std::span<float> residual, bool in_place) {
  std::vector<Phase> phases;
  const std::uint32_t passes = it->codec->passes();
  const std::span<float> fused = passes == 1 ? residual : std::span<float>();
  for (std::uint32_t pass = 0; pass < passes; ++pass) add_pass(setup, it, pass, fused, in_place, phases);
  if (passes == 1 || residual.empty()) return phases;
  const auto leave = [it, residual, in_place](std::size_t i) {
    const std::span<float> rest = it->schema.layout.of(residual, i);
    const auto chunk = in_place ? rest : it->schema.layout.of(it->values, i);
    const Status status = it->codec->leave_chunk(it->plan, i, chunk, rest);
    must(status.ok(), *it->codec, "residual", status);
  };
  phases.push_back({.serial = {}, .parts = it->schema.layout.chunk_count(), .part = leave});
  return phases;
}

double part_of_values_sent(const CodecSpec& spec) {
  switch (spec.kind) {
    case kernels::CodecKind::kTopk:
    case kernels::CodecKind::kRandk:
    case kernels::CodecKind::kDgc: return spec.ratio;
    default: return 1;
  }
}

// `read` over the chunks of a codec with one pass: their bytes, and the part of `values` that they cover.
template <typename T>
using Reader = std::function<Status(ByteSpan bytes, std::span<T> values)>;

template <typename T>
std::vector<Phase> over_chunks(const Shared& it, std::span<T> values, std::string_view verb, const Reader<T>& read) {
  const kernels::ChunkLayout layout = it->schema.layout;
  return {{.serial = {}, .parts = layout.chunk_count(), .part = [it, values, verb, read, layout](std::size_t i) {
             const Status status = read(it->chunk(i), layout.of(values, i));
             must(status.ok(), *it->codec, verb, status);
           }}};
}

// With several passes a vector comes from the means of all of them.
std::vector<Phase> expand_phases(const Setup& setup, const Shared& it, std::span<float> out) {
  std::vector<std::span<float>> means;
  for (std::uint32_t pass = 0; pass < it->codec->passes(); ++pass) means.push_back(mean_of_pass(setup, *it, pass));
  const auto plan = std::make_shared<kernels::ExpandPlan>();
  const auto prepare = [it, plan, means = std::move(means)] {
    for (std::uint32_t pass = 0; pass < it->codec->passes(); ++pass) decode_pass(*it, pass, means[pass]);
    const std::vector<std::span<const float>> read(means.begin(), means.end());
    auto made = it->codec->prepare_expand(it->schema, read, it->workspace);
    must(made.ok(), *it->codec, "expand", made);
    *plan = *made;
  };
  const auto expand = [it, plan, out](std::size_t i) {
    const Status status = it->codec->expand_chunk(*plan, i, it->schema.layout.of(out, i));
    must(status.ok(), *it->codec, "expand", status);
  };
  return {{.serial = prepare, .parts = it->schema.layout.chunk_count(), .part = expand}};
}

Result<Timed> time_decode(const Setup& setup, const Shared& it) {
  const auto floats = setup.memory.of<float>("floats", setup.values);
  const Reader<float> decode = [it](ByteSpan bytes, std::span<float> out) {
    return it->codec->decode_chunk(bytes, out);
  };
  std::vector<Phase> phases =
      it->codec->passes() == 1 ? over_chunks(it, floats, "decode", decode) : expand_phases(setup, it, floats);
  return on_cpu(setup, std::move(phases), it->bytes() + 4 * static_cast<double>(setup.values));
}

Result<Timed> time_accumulate(const Setup& setup, const Shared& it, double sent) {
  const auto floats = setup.memory.of<float>("floats", setup.values);
  std::ranges::fill(floats, 0.0F);
  const Reader<float> add = [it](ByteSpan bytes, std::span<float> sum) {
    return it->codec->decode_add_chunk(bytes, 0.5F, sum);
  };
  return on_cpu(setup, over_chunks(it, floats, "accumulate", add), it->bytes() + 8 * sent);
}

Result<Timed> time_decode_accumulate(const Setup& setup, const Shared& it, double sent) {
  const auto sum = setup.memory.of<std::int64_t>("sum", setup.values);
  std::ranges::fill(sum, 0);
  const int scale_bits = kernels::scale_bits(40, 1024, std::uint64_t{64} * kWeight).value();  // for 64 sites
  const Reader<std::int64_t> add = [it, scale_bits](ByteSpan bytes, std::span<std::int64_t> out) {
    return it->codec->decode_accumulate_chunk(bytes, kWeight, scale_bits, out);
  };
  return on_cpu(setup, over_chunks(it, sum, "decode_accumulate", add), it->bytes() + 16 * sent);
}

Result<Timed> time_screen(const Setup& setup, const Shared& it) {
  const auto floats = setup.memory.of<float>("floats", setup.values);  // for the lengths alone
  const Reader<float> screen = [it](ByteSpan bytes, std::span<float> values) -> Status {
    const auto report = it->codec->screen_chunk(bytes, values.size(), 0);
    return report.ok() ? Status() : report.error();
  };
  return on_cpu(setup, over_chunks(it, floats, "screen", screen), it->bytes());
}

Result<Timed> time_verb(const Setup& setup, const CodecSpec& spec, Verb verb) {
  const auto it = make_encoding(setup, spec);
  const auto count = static_cast<double>(setup.values);
  if (verb == Verb::kEncode || verb == Verb::kEncodeResidual || verb == Verb::kEncodeInPlace) {
    std::span<float> residual;
    if (verb != Verb::kEncode) residual = setup.memory.of<float>("floats", setup.values);
    if (verb == Verb::kEncodeInPlace) std::ranges::copy(it->values, residual.begin());
    std::vector<Phase> phases = encode_phases(setup, it, residual, verb == Verb::kEncodeInPlace);
    run_phases(phases, setup.crew);  // so that the encoded bytes are known
    return on_cpu(setup, std::move(phases), it->bytes() + (residual.empty() ? 4 : 8) * count);
  }
  run_phases(encode_phases(setup, it, {}, false), setup.crew);
  if (verb == Verb::kDecode) return time_decode(setup, it);
  const double sent = part_of_values_sent(spec) * count;
  if (verb == Verb::kAccumulate) return time_accumulate(setup, it, sent);
  if (verb == Verb::kDecodeAccumulate) return time_decode_accumulate(setup, it, sent);
  return time_screen(setup, it);
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
  const auto is_its = [&](std::string_view example) {
    return example.starts_with(label.codec) &&
           (example.size() == label.codec.size() || example[label.codec.size()] == ':');
  };
  const std::vector<std::string> examples = kernels::codec_examples();
  const std::vector<std::string> usual =
      options_of(kernels::parse_codec(*std::ranges::find_if(examples, is_its)).value());
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
  if (codec->passes() > 1) return;  // its factors travel and add up as fp32
  add("accumulate", Verb::kAccumulate, true, false);
  add("decode_accumulate", Verb::kDecodeAccumulate, true, false);
  if (spec.kind != kernels::CodecKind::kFp32) add("screen", Verb::kScreen, false, false);
}

}  // namespace

std::vector<Case> codec_cases() {
  std::vector<Case> cases;
  for (const std::string& example : kernels::codec_examples()) {
    const std::string name = example.substr(0, example.find(':'));
    add_cases(kernels::parse_codec(example).value(), true, cases);
    for (const std::string_view variant : kVariants) {
      if (!variant.starts_with(name + ":")) continue;
      const auto spec = kernels::parse_codec(variant);
      if (spec.ok()) add_cases(*spec, false, cases);
    }
  }
  return cases;
}

}  // namespace fluvial::bench
