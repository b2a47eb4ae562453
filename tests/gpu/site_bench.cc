#include "tests/gpu/site_bench.h"

#include <chrono>
#include <cstring>

#include "edge/gpu/gpu_update.h"
#include "kernels/device_vector.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using edge::GpuUpdate;
using edge::SiteGpus;
using kernels::ChunkLayout;
using kernels::ChunkOutcome;

constexpr kernels::StreamKey kKey{.run = 1, .round = 2, .site = 3};

class SiteBench {
 public:
  SiteBench(std::shared_ptr<SiteGpus> gpus, std::size_t values, const kernels::CodecSpec& spec)
      : gpus_(std::move(gpus)), device_(gpus_->devices().front()), layout_{.value_count = values}, spec_(spec) {
    const std::vector<float> some = kernels::test_values::normals(1 << 20, 1);
    for (std::size_t i = 0; i < values; ++i) base_[i] = some[i % some.size()];
    for (std::size_t i = 0; i < values; ++i) residual_[i] = some[(i + 77) % some.size()] / 8;
    for (const OnDevice<float>* model : {&first_, &second_}) {
      require(kernels::copy_to_device(std::span<const float>(base_), model->span(), stream_));
    }
    require(stream_.synchronize());
  }

  // As the agent does it. Bytes that were encoded.
  double overlapped() {
    const auto update = require(GpuUpdate::make(*gpus_, {{workers_[0], 1}, {workers_[1], 3}}, layout_));
    Serial serial;
    require(update->make_p(
        {.base = reader(base_), .residual = reader(residual_)},
        [&](std::size_t, std::span<const float> p, const auto&) { return take(std::as_bytes(p)); }, serial));
    check(require(update->takes(spec_)), "the device has the codec");
    double bytes = 0;
    require(update->encode(kKey, [&](std::size_t, ByteSpan chunk) {
      bytes += static_cast<double>(chunk.size());
      return take(chunk);
    }));
    return bytes;
  }

  void one_after_the_other() {
    for (std::size_t i = 0; i < layout_.chunk_count(); ++i) make_chunk(i);
    const kernels::VectorSchema schema{layout_, {}};
    const auto plan = require(codec_->prepare(schema, p_.span(), kKey, {}, workspace_.span(), stream_));
    for (std::size_t i = 0; i < layout_.chunk_count(); ++i) {
      require(codec_->encode_chunk(plan, i, part(p_, i), encoded_.span(), outcome_, stream_));
      require(stream_.synchronize());
      const std::size_t size = require(codec_->encoded_bytes(*outcome_));
      leave(DeviceSpan<const std::byte>(encoded_.span().first(size)));
    }
  }

 private:
  static GpuUpdate::Read reader(const std::vector<float>& of) {
    return [&of](std::uint64_t first, std::span<float> into) -> Status {
      std::memcpy(into.data(), of.data() + first, into.size_bytes());
      return {};
    };
  }
  Status take(ByteSpan bytes) {
    std::memcpy(taken_.data(), bytes.data(), bytes.size());
    return {};
  }
  DeviceSpan<float> part(const OnDevice<float>& of, std::size_t chunk) const {
    return of.span().subspan(static_cast<std::size_t>(layout_.first_value(chunk)), layout_.size(chunk));
  }
  void bring(const std::vector<float>& of, std::size_t chunk, const OnDevice<float>& into) {
    const std::span<float> pinned = pinned_.as<float>().first(layout_.size(chunk));
    require(reader(of)(layout_.first_value(chunk), pinned));
    require(kernels::copy_to_device(std::span<const float>(pinned), into.span().first(pinned.size()), stream_));
    require(stream_.synchronize());
  }
  void leave(DeviceSpan<const std::byte> bytes) {
    const std::span<std::byte> pinned = pinned_.span().first(bytes.size());
    require(kernels::copy_to_host(bytes, pinned, stream_));
    require(stream_.synchronize());
    require(take(pinned));
  }
  void make_chunk(std::size_t i) {
    const DeviceSpan<float> p = part(p_, i);
    const DeviceSpan<const float> models[] = {part(first_, i), part(second_, i)};
    const std::uint32_t weights[] = {1, 3};
    bring(base_, i, base_chunk_);
    bring(residual_, i, residual_chunk_);
    require(kernels::device_weighted_mean(models, weights, p, stream_));
    require(stream_.synchronize());
    require(kernels::device_pseudo_gradient(base_chunk_.span().first(p.size()), p,
                                            residual_chunk_.span().first(p.size()), p, stream_));
    require(stream_.synchronize());
    require(kernels::device_screen(p, layout_.first_value(i), screening_.span(), outcome_, stream_));
    require(stream_.synchronize());
    leave({reinterpret_cast<const std::byte*>(p.data()), p.size_bytes()});
  }

  std::shared_ptr<SiteGpus> gpus_;
  Device device_;
  ChunkLayout layout_;
  kernels::CodecSpec spec_;
  std::size_t values_ = static_cast<std::size_t>(layout_.value_count);
  std::size_t chunk_values_ = std::min(values_, static_cast<std::size_t>(layout_.chunk_values));
  std::vector<float> base_ = std::vector<float>(values_), residual_ = std::vector<float>(values_);
  Stream stream_ = require(Stream::make(device_));
  OnDevice<float> first_{device_, values_, stream_}, second_{device_, values_, stream_};
  std::shared_ptr<const edge::WorkerVector> workers_[2] = {gpus_->own(0, first_.span()), gpus_->own(0, second_.span())};

  std::unique_ptr<kernels::DeviceCodec> codec_ = require(kernels::make_device_codec(device_, spec_));
  OnDevice<float> p_{device_, values_, stream_};
  OnDevice<float> base_chunk_{device_, chunk_values_, stream_}, residual_chunk_{device_, chunk_values_, stream_};
  OnDevice<std::byte> workspace_{device_, codec_->workspace_bytes({layout_, {}}), stream_};
  OnDevice<std::byte> screening_{device_, kernels::device_screen_workspace_bytes(chunk_values_), stream_};
  OnDevice<std::byte> encoded_{device_, codec_->encoded_bytes_max(chunk_values_), stream_};
  std::size_t most_ = std::max(encoded_.span().size(), chunk_values_ * sizeof(float));
  PinnedBuffer pinned_ = require(PinnedBuffer::make(device_, most_));
  PinnedBuffer outcomes_ = require(PinnedBuffer::make(device_, sizeof(ChunkOutcome)));
  ChunkOutcome* outcome_ = outcomes_.as<ChunkOutcome>().data();
  std::vector<std::byte> taken_ = std::vector<std::byte>(most_);
};

template <typename Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

SiteTimes site_times(const Device& device, std::size_t values, const std::string& codec, std::size_t rounds) {
  SiteTimes times;
  const kernels::CodecSpec spec = kernels::parse_codec(codec).value();
  if (device.kind == kernels::DeviceKind::kCpu || !kernels::make_device_codec(device, spec).ok()) return times;
  SiteBench bench(require(SiteGpus::make({device})), values, spec);
  const double encoded = bench.overlapped();  // the first one takes its memory
  times.bytes = 12.0 * static_cast<double>(values) + encoded;
  for (std::size_t round = 0; round < rounds; ++round) {
    times.whole.push_back(seconds([&] { bench.overlapped(); }));
    times.stages.push_back(seconds([&] { bench.one_after_the_other(); }));
  }
  return times;
}

}  // namespace fluvial::gpu_test
