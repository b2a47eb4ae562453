// gpu_bench [--device cuda] [--values N]... [--only CODEC]... [--seconds S] [--json FILE]: what the kernels of a device
// cost against a copy from the device to itself that moves the same bytes, in turns, in the same run; of all codecs and
// of vectors, or of some codecs alone. Exit status 77 when there is no such device. The copy of a `pipeline` or `site`
// row is the sum of its stages, each by itself.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>

#include "kernels/device_powersgd.h"
#include "kernels/device_robust.h"
#include "kernels/device_vector.h"
#include "kernels/encode_pipeline.h"
#include "kernels/test_values.h"
#include "tests/bench/kernels_report.h"
#include "tests/gpu/check.h"
#include "tests/gpu/site_bench.h"

namespace fluvial::gpu_test {

void fail(const std::string& what, const std::source_location& where) {
  std::cerr << where.file_name() << ":" << where.line() << ": " << what << "\n";
}

namespace {

using bench::Figures;
using kernels::ChunkOutcome;
using kernels::DeviceCodec;
using kernels::DevicePowerSgd;
using kernels::VectorSchema;

constexpr int kSkipped = 77;
constexpr std::size_t kRounds = 9;
constexpr std::size_t kReduceMost = 8;
constexpr std::size_t kMatrixSide = 1'000;  // of PowerSGD's models
constexpr kernels::StreamKey kKey{.run = 1, .round = 2, .site = 3};

struct Options {
  Device device = Device::cuda();
  std::vector<std::size_t> values;
  std::vector<std::string> only;
  double seconds = 0.25;  // for each row
  std::string json;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// Values on the device, and the rows measured.
class Session {
 public:
  Session(const Options& options, std::size_t values, std::vector<Figures>* rows)
      : options_(options), n_(values), rows_(rows), vector_(kernels::test_values::normals(1 << 20, 1)) {
    for (std::size_t first = 0; first < n_; first += vector_.size()) {
      const std::size_t length = std::min(vector_.size(), n_ - first);
      require(kernels::copy_to_device(std::span<const float>(vector_).first(length), x_.span().subspan(first, length),
                                      stream_));
    }
    require(kernels::fill_zero({reinterpret_cast<std::byte*>(sum_.span().data()), sum_.span().size_bytes()}, stream_));
    require(kernels::fill_zero({reinterpret_cast<std::byte*>(out_.span().data()), out_.span().size_bytes()}, stream_));
    require(stream_.synchronize());
  }

  void run() {
    if (options_.only.empty()) vectors();
    for (const char* text : {"fp32", "fp16", "bf16", "int8", "int8:rounding=nearest", "int4", "int4:rounding=nearest",
                             "sign", "qsgd", "qsgd:encoding=elias", "terngrad", "ring:max=8", "topk", "dgc", "randk"}) {
      const Result<kernels::CodecSpec> spec = kernels::parse_codec(text);
      if (!spec.ok() || !is_wanted(text)) continue;
      auto codec = kernels::make_device_codec(options_.device, *spec);
      if (codec.ok()) codecs(text, **codec);
    }
    for (const char* text : {"powersgd:rank=1", "powersgd:rank=4"}) {
      if (is_wanted(text)) lowrank(text);
    }
    for (const char* text : {"fp32", "int8", "topk"}) {
      if (is_wanted(text)) pipeline(text);
    }
    for (const char* text : {"fp32", "int8", "topk"}) {
      if (!is_wanted(text)) continue;
      const SiteTimes times = site_times(options_.device, n_, text, kRounds);
      if (!times.whole.empty()) put("site", text, times.bytes, median(times.whole), median(times.stages));
    }
  }

 private:
  // A codec by its name, or with its options.
  bool is_wanted(std::string_view text) const {
    return options_.only.empty() || std::ranges::any_of(options_.only, [&](const std::string& one) {
             return text == one || text.substr(0, text.find(':')) == one;
           });
  }

  // `bytes` are those that the work has to read and write.
  template <typename Work>
  void row(const std::string& kernel, const std::string& text, double bytes, const Work& work) {
    const std::size_t half = std::min(static_cast<std::size_t>(bytes / 2), from_.span().size());
    const auto copy = [&] {
      require(kernels::copy_on_device(DeviceSpan<const std::byte>(from_.span().first(half)), to_.span().first(half),
                                      stream_));
    };
    const double scale = bytes / 2 / static_cast<double>(half);
    const std::size_t copies = batch(copy), works = batch(work);
    std::vector<double> copy_times, work_times;
    for (std::size_t round = 0; round < kRounds; ++round) {
      copy_times.push_back(scale * timed(copy, copies));
      work_times.push_back(timed(work, works));
    }
    put(kernel, text, bytes, median(work_times), median(copy_times));
  }

  void put(const std::string& kernel, const std::string& text, double bytes, double seconds, double copy_seconds) {
    Figures figures;
    figures.kernel = kernel;
    figures.codec = text.substr(0, text.find(":rounding"));
    figures.backend = options_.device.kind == kernels::DeviceKind::kCuda ? "cuda" : to_string(options_.device);
    figures.target = figures.backend;
    figures.rounding = figures.codec == "int8" || figures.codec == "int4"
                           ? (text.find("nearest") != std::string::npos ? "nearest" : "stochastic")
                           : "";
    figures.values = n_;
    figures.seconds_median = seconds;
    figures.values_per_s = static_cast<double>(n_) / seconds;
    figures.gb_per_s = bytes / seconds / 1e9;
    figures.ratio_to_copy = copy_seconds / seconds;
    rows_->push_back(figures);
    const bool is_bound = figures.backend == "cuda" && n_ >= 25'000'000 && kernel != "pipeline" && kernel != "site" &&
                          kernel != "norm" && kernel != "median" && text != "qsgd:encoding=elias" && text != "topk" &&
                          text != "dgc" && text != "randk" && !text.starts_with("powersgd");
    std::cout << bench::text_row(figures, is_bound ? std::optional(0.85) : std::nullopt) << std::flush;
  }

  template <typename Work>
  double timed(const Work& work, std::size_t times) {
    const double begin = now();
    for (std::size_t i = 0; i < times; ++i) work();
    require(stream_.synchronize());
    return (now() - begin) / static_cast<double>(times);
  }
  template <typename Work>
  std::size_t batch(const Work& work) {
    timed(work, 2);
    const double once = timed(work, 3);
    return std::clamp<std::size_t>(static_cast<std::size_t>(options_.seconds / 2 / kRounds / once), 1, 1'000);
  }

  void vectors() {
    const double n = static_cast<double>(n_);
    std::vector<OnDevice<float>> buffers;
    std::vector<DeviceSpan<const float>> spans;
    for (std::size_t k = 0; k < kReduceMost; ++k) {
      buffers.emplace_back(options_.device, n_, stream_);
      require(kernels::copy_on_device(DeviceSpan<const float>(x_.span()), buffers.back().span(), stream_));
      spans.push_back(buffers.back().span());
    }
    for (const std::size_t count : {2U, 4U, 8U}) {
      row(count == 4 ? "reduce" : "reduce_" + std::to_string(count), "fp32", 4 * n * static_cast<double>(count + 1),
          [&] { require(kernels::device_reduce(std::span(spans).first(count), out_.span(), stream_)); });
    }
    const OnDevice<std::byte> sorting(options_.device, kernels::device_robust_workspace_bytes(kReduceMost), stream_);
    row("median", "fp32", 4 * n * (kReduceMost + 1.0),
        [&] { require(kernels::device_coordinate_median(spans, sorting.span(), out_.span(), stream_)); });
    const OnDevice<std::byte> workspace(options_.device, kernels::device_screen_workspace_bytes(n_), stream_);
    row("screen", "fp32", 4 * n,
        [&] { require(kernels::device_screen(x_.span(), 0, workspace.span(), outcome_, stream_)); });
    row("mean", "fp32", 12 * n,
        [&] { require(kernels::device_mean_of_sums(sum_.span(), 30, 7, out_.span(), stream_)); });
    row("optimize", "fedavgm", 20 * n, [&] {
      require(kernels::device_apply_momentum(1e-9, 0.9, x_.span(), buffers[0].span(), out_.span(), stream_));
    });
    row("optimize", "fedadam", 28 * n, [&] {
      require(kernels::device_apply_adaptive(kernels::AdaptiveRule::kAdam, {.lr = 1e-9}, x_.span(), buffers[1].span(),
                                             buffers[2].span(), out_.span(), stream_));
    });
    row("optimize", "lars", 20 * n,
        [&] { require(kernels::device_apply_lars(0.9, 1e-9, 0, x_.span(), buffers[0].span(), out_.span(), stream_)); });
    row("optimize", "lamb", 28 * n, [&] {
      require(
          kernels::device_apply_lamb({}, 1e-9, x_.span(), buffers[1].span(), buffers[2].span(), out_.span(), stream_));
    });
    const OnDevice<double> lanes(options_.device, std::tuple_size_v<kernels::SquareLanes>, stream_);
    const OnDevice<std::byte> squares(options_.device, kernels::device_squares_workspace_bytes(n_), stream_);
    row("norm", "fp32", 4 * n,
        [&] { require(kernels::device_add_squares(x_.span(), lanes.span(), squares.span(), stream_)); });
  }

  VectorSchema schema(std::size_t chunk_values) const {
    return {.layout = {.value_count = n_, .chunk_values = chunk_values}, .tensors = {}};
  }

  void codecs(const std::string& text, const DeviceCodec& codec) {
    const double n = static_cast<double>(n_);
    const std::size_t chunks = (n_ + kernels::kChunkValuesMax - 1) / kernels::kChunkValuesMax;
    const VectorSchema schema = this->schema((n_ / chunks + 1023) / 1024 * 1024);
    const auto& layout = schema.layout;
    const OnDevice<std::byte> workspace(options_.device, codec.workspace_bytes(schema), stream_);
    const OnDevice<std::byte> state(options_.device, codec.state_bytes(schema), stream_);
    require(kernels::fill_zero(state.span(), stream_));
    std::vector<OnDevice<std::byte>> encoded;
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      encoded.emplace_back(options_.device, codec.encoded_bytes_max(layout.size(i)), stream_);
    }
    const auto part = [&](auto span, std::size_t i) {
      return span.subspan(static_cast<std::size_t>(layout.first_value(i)), layout.size(i));
    };
    std::vector<std::size_t> sizes(layout.chunk_count());
    const auto encode = [&](DeviceSpan<float> residual) {
      const auto plan = require(codec.prepare(schema, x_.span(), kKey, state.span(), workspace.span(), stream_));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        require(codec.encode_residual_chunk(plan, i, part(x_.span(), i), encoded[i].span(),
                                            residual.empty() ? residual : part(residual, i), outcome_, stream_));
      }
    };
    double bytes = 0;
    const auto plan = require(codec.prepare(schema, x_.span(), kKey, state.span(), workspace.span(), stream_));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      require(codec.encode_chunk(plan, i, part(x_.span(), i), encoded[i].span(), outcome_, stream_));
      require(stream_.synchronize());
      sizes[i] = require(codec.encoded_bytes(*outcome_));
      bytes += static_cast<double>(sizes[i]);
    }
    row("encode", text, 4 * n + bytes, [&] { encode({}); });
    row("encode_residual", text, 8 * n + bytes, [&] { encode(out_.span()); });
    const auto each = [&](const auto& verb) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        verb(i, DeviceSpan<const std::byte>(encoded[i].span().first(sizes[i])));
      }
    };
    if (codec.state_bytes(schema) != 0) {  // the momentum too, read and written
      row("fold", text, 16 * n,
          [&] { require(codec.fold(schema, x_.span(), {}, state.span(), workspace.span(), out_.span(), stream_)); });
    }
    if (text == "topk" || text == "dgc") return;  // read by one block: for tests, not for speed
    row("decode", text, bytes + 4 * n, [&] {
      each([&](std::size_t i, auto from) { require(codec.decode_chunk(from, part(out_.span(), i), stream_)); });
    });
    row("accumulate", text, bytes + 8 * n, [&] {
      each([&](std::size_t i, auto from) {
        require(codec.decode_add_chunk(from, 1e-9F, part(out_.span(), i), stream_));
      });
    });
    const OnDevice<std::byte> screening(options_.device, DeviceCodec::screen_workspace_bytes(layout.size(0)), stream_);
    const PinnedBuffer outcomes = require(PinnedBuffer::make(options_.device, sizes.size() * sizeof(ChunkOutcome)));
    row("decode_accumulate", text, 2 * bytes + 16 * n, [&] {  // screened first
      each([&](std::size_t i, auto from) {
        require(codec.decode_accumulate_chunk(from, layout.first_value(i), 3, 20, part(sum_.span(), i),
                                              screening.span(), outcomes.as<ChunkOutcome>().data() + i, stream_));
      });
    });
  }

  // Bytes are those of the vectors: factors are small beside them.
  void lowrank(const std::string& text) {
    const auto codec = require(kernels::make_device_powersgd(options_.device, kernels::parse_codec(text).value()));
    std::vector<kernels::TensorShape> matrices;
    static constexpr std::array<std::uint64_t, 2> kDims = {kMatrixSide, kMatrixSide};
    for (std::size_t first = 0; first + kMatrixSide * kMatrixSide <= n_; first += kMatrixSide * kMatrixSide) {
      matrices.push_back({.dims = kDims, .offset_values = first});
    }
    const VectorSchema schema{.layout = {.value_count = n_}, .tensors = matrices};
    const OnDevice<std::byte> workspace(options_.device, codec->workspace_bytes(schema), stream_);
    const OnDevice<std::byte> state(options_.device, codec->state_bytes(schema), stream_);
    require(kernels::fill_zero(state.span(), stream_));
    const auto prepare = [&](std::uint32_t pass, DeviceSpan<const float> mean) {
      return require(
          codec->prepare(schema, x_.span(), kKey, pass, mean, state.span(), workspace.span(), outcome_, stream_));
    };
    const auto sent_of = [&](std::uint32_t pass, DeviceSpan<const float> mean) {
      OnDevice<float> sent(options_.device, codec->pass_layout(schema, pass).value_count, stream_);
      require(kernels::copy_on_device(prepare(pass, mean).sent.values, sent.span(), stream_));
      require(stream_.synchronize());
      require(DevicePowerSgd::accepted(*outcome_));
      return sent;
    };
    const OnDevice<float> p = sent_of(0, {}), q = sent_of(1, p.span());
    const double bytes = 4 * static_cast<double>(n_);
    row("pass_1", text, bytes, [&] { prepare(0, {}); });
    row("pass_2", text, bytes, [&] { prepare(1, p.span()); });
    const auto each_chunk = [&](const auto& verb) {
      for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
        const auto first = static_cast<std::size_t>(schema.layout.first_value(i));
        require(verb(i, x_.span().subspan(first, schema.layout.size(i)),
                     out_.span().subspan(first, schema.layout.size(i))));
      }
    };
    const kernels::DeviceLowrankPlan plan = prepare(1, p.span());
    row("residual", text, 2 * bytes, [&] {
      each_chunk([&](std::size_t i, auto from, auto out) { return codec->leave_chunk(plan, i, from, out, stream_); });
    });
    row("expand", text, bytes, [&] {
      const auto mean = require(codec->prepare_expand(schema, p.span(), q.span(), workspace.span(), stream_));
      each_chunk([&](std::size_t i, auto, auto out) { return codec->expand_chunk(mean, i, out, stream_); });
    });
  }

  // Encoding, copying out and a caller that reads every byte, overlapped, against the sum of the three.
  void pipeline(const std::string& text) {
    auto codec = kernels::make_device_codec(options_.device, kernels::parse_codec(text).value());
    if (!codec.ok()) return;
    const VectorSchema schema = this->schema(kernels::kChunkValuesDefault);
    auto pipeline = require(kernels::EncodePipeline::make(options_.device, **codec, kernels::kChunkValuesDefault));
    const OnDevice<std::byte> workspace(options_.device, (*codec)->workspace_bytes(schema), stream_);
    const OnDevice<std::byte> encoded(options_.device, (*codec)->encoded_bytes_max(kernels::kChunkValuesDefault),
                                      stream_);
    PinnedBuffer pinned = require(PinnedBuffer::make(options_.device, encoded.span().size()));
    std::vector<std::byte> sent(encoded.span().size());
    const auto leave = [&](std::size_t, ByteSpan bytes) -> Status {
      std::memcpy(sent.data(), bytes.data(), bytes.size());
      return {};
    };
    const auto prepare = [&](Stream& stream) {
      return require((*codec)->prepare(schema, x_.span(), kKey, {}, workspace.span(), stream));
    };
    std::vector<double> whole, stages;
    double bytes = 0;
    for (std::size_t round = 0; round < kRounds; ++round) {
      double begin = now();
      require(pipeline.run(prepare(pipeline.stream()), {}, leave));
      whole.push_back(now() - begin);
      begin = now();
      const auto plan = prepare(stream_);
      bytes = 0;
      for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
        const auto chunk =
            x_.span().subspan(static_cast<std::size_t>(schema.layout.first_value(i)), schema.layout.size(i));
        require((*codec)->encode_chunk(plan, i, chunk, encoded.span(), outcome_, stream_));
        require(stream_.synchronize());
        const std::size_t size = require((*codec)->encoded_bytes(*outcome_));
        bytes += static_cast<double>(size);
        require(kernels::copy_to_host(DeviceSpan<const std::byte>(encoded.span().first(size)),
                                      pinned.span().first(size), stream_));
        require(stream_.synchronize());
        require(leave(i, pinned.span().first(size)));
      }
      stages.push_back(now() - begin);
    }
    put("pipeline", text, bytes, median(whole), median(stages));
  }

  const Options& options_;
  std::size_t n_;
  std::vector<Figures>* rows_;
  std::vector<float> vector_;
  Stream stream_ = require(Stream::make(options_.device));
  OnDevice<float> x_{options_.device, n_, stream_};
  OnDevice<float> out_{options_.device, n_, stream_};
  OnDevice<std::int64_t> sum_{options_.device, n_, stream_};
  OnDevice<std::byte> from_{options_.device, 10 * n_, stream_};
  OnDevice<std::byte> to_{options_.device, 10 * n_, stream_};
  PinnedBuffer pinned_ = require(PinnedBuffer::make(options_.device, sizeof(ChunkOutcome)));
  ChunkOutcome* outcome_ = pinned_.as<ChunkOutcome>().data();
};

int usage() {
  std::cerr << "usage: gpu_bench [--device cuda|cuda:N|cpu] [--values N]... [--only CODEC]... [--seconds S] "
               "[--json FILE]\n";
  return 2;
}

bool parse(std::span<char* const> arguments, Options* options) {
  if (arguments.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view key = arguments[i];
    const std::string value = arguments[i + 1];
    if (key == "--device") {
      const auto device = kernels::parse_device(value);
      if (!device.ok()) return false;
      options->device = *device;
    } else if (key == "--values") {
      options->values.push_back(std::strtoull(value.c_str(), nullptr, 10));
      if (options->values.back() < 1'000) return false;
    } else if (key == "--only") {
      options->only.push_back(value);
    } else if (key == "--seconds") {
      options->seconds = std::strtod(value.c_str(), nullptr);
    } else if (key == "--json") {
      options->json = value;
    } else {
      return false;
    }
  }
  if (options->values.empty()) options->values = {1'000'000, 25'000'000, 100'000'000};
  return true;
}

}  // namespace

int bench_main(std::span<char* const> arguments) {
  Options options;
  if (!parse(arguments, &options)) return usage();
  if (const Status there = kernels::check_device(options.device); !there.ok()) {
    std::cout << "skipped: " << there.error().message << "\n";
    return kSkipped;
  }
  if (options.device.kind == kernels::DeviceKind::kCuda) {
    std::cout << require(kernels::cuda_device(options.device.index)).name << "\n";
  }
  std::cout << bench::text_header();
  std::vector<Figures> rows;
  for (const std::size_t values : options.values) Session(options, values, &rows).run();
  if (rows.empty()) {
    std::cerr << "none of these codecs has a benchmark\n";
    return 2;
  }
  if (!options.json.empty()) std::ofstream(options.json) << bench::json_of(rows);
  return 0;
}

}  // namespace fluvial::gpu_test

int main(int argc, char** argv) {
  return fluvial::gpu_test::bench_main(std::span<char* const>(argv + 1, static_cast<std::size_t>(argc - 1)));
}
