// edge/gpu: an update made where the workers' vectors lie is the one that the host makes of them.
#include <cmath>
#include <limits>

#include "edge/gpu/gpu_update.h"
#include "kernels/cuda/emulated/device.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"
#include "tests/gpu/check.h"
#include "tests/gpu/lender.h"

namespace fluvial::gpu_test {
namespace {

using edge::GpuPart;
using edge::GpuUpdate;
using edge::SiteGpus;
using edge::WorkerVector;
using kernels::ChunkLayout;
using kernels::StreamKey;
using kernels::test_values::adversarial;
using kernels::test_values::normals;

constexpr StreamKey kKey{.run = 11, .round = 5, .site = 3};

// The GPUs of a site; none where the device is no GPU.
std::shared_ptr<SiteGpus> gpus_of(std::vector<Device> devices, std::string* warned = nullptr) {
  const auto warn = [warned](const std::string& line) {
    if (warned != nullptr) warned->append(line).append("\n");
  };
  return require(SiteGpus::make(std::move(devices), {.warn = warn}));
}
bool is_gpu(const Context& context) { return context.device.kind != kernels::DeviceKind::kCpu; }

struct Round {
  ChunkLayout layout;
  bool updates = false;
  std::vector<float> base, residual;  // no residual: zero
  std::vector<std::vector<float>> vectors;
  std::vector<std::uint32_t> weights;

  std::vector<float> p() const {
    std::vector<std::span<const float>> spans(vectors.begin(), vectors.end());
    std::vector<float> mean(vectors.front().size());
    require(kernels::weighted_mean(spans, weights, mean));
    std::vector<float> p(mean.size());
    if (updates) {
      kernels::add_residual(mean, residual, p);
    } else {
      kernels::pseudo_gradient(base, mean, residual, p);
    }
    return p;
  }
};

Round round_of(std::size_t values, std::size_t chunk_values, std::size_t parts, bool updates, bool residual) {
  Round round{.layout = {.value_count = values, .chunk_values = chunk_values}, .updates = updates};
  if (!updates) round.base = normals(values, 1);
  if (residual) round.residual = adversarial(values, 2, 4.0F);
  for (std::size_t i = 0; i < parts; ++i) {
    round.vectors.push_back(i % 2 == 0 ? normals(values, 10 + i) : adversarial(values, 10 + i, 3.0F));
    round.weights.push_back(static_cast<std::uint32_t>(1 + 1000 * i * i));
  }
  return round;
}

// The vectors of a round in the memory of GPUs, the first on the first, and so on around.
class Workers {
 public:
  Workers(const std::shared_ptr<SiteGpus>& gpus, const Round& round) : round_(round) {
    const std::size_t count = gpus->devices().size();
    for (std::size_t i = 0; i < round.vectors.size(); ++i) {
      const Device& device = gpus->devices()[i % count];
      streams_.push_back(std::make_unique<Stream>(require(Stream::make(device))));
      memory_.emplace_back(device, std::span<const float>(round.vectors[i]), *streams_.back(), 4 * i);
      parts_.push_back({gpus->own(i % count, memory_.back().span()), round.weights[i]});
    }
  }
  const std::vector<GpuPart>& parts() const { return parts_; }
  void spoil(std::size_t chunk) {
    const std::vector<float> junk(round_.layout.size(chunk), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const auto first = static_cast<std::size_t>(round_.layout.first_value(chunk));
      require(kernels::copy_to_device(std::span<const float>(junk), memory_[i].span().subspan(first, junk.size()),
                                      *streams_[i]));
      require(streams_[i]->synchronize());
    }
  }

 private:
  const Round& round_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<OnDevice<float>> memory_;
  std::vector<GpuPart> parts_;
};

GpuUpdate::From from_of(const Round& round) {
  const auto reader = [](const std::vector<float>& of) -> GpuUpdate::Read {
    if (of.empty()) return nullptr;
    return [&of](std::uint64_t first, std::span<float> into) -> Status {
      std::copy_n(of.begin() + static_cast<std::ptrdiff_t>(first), into.size(), into.begin());
      return {};
    };
  };
  return {.base = reader(round.base), .residual = reader(round.residual)};
}

// `tolerance`: of the update alone, where it is not the host's to the bit.
std::vector<float> made_p(GpuUpdate& update, const Round& round, const std::string& what, float tolerance = 0) {
  std::vector<float> p(static_cast<std::size_t>(round.layout.value_count));
  Round without = round;
  without.residual.clear();
  const std::vector<float> alone = without.p();
  std::size_t next = 0;
  Serial serial;
  require(update.make_p(
      from_of(round),
      [&](std::size_t chunk, std::span<const float> values, const GpuUpdate::Screened& found) -> Status {
        check(chunk == next++, what + ": chunks in order");
        check(found.p.ok() && found.p->max_abs == kernels::screen(values)->max_abs, what + ": the screen of p");
        const float max_abs = kernels::screen(round.layout.of(std::span<const float>(alone), chunk))->max_abs;
        check(found.update.ok() && std::fabs(found.update->max_abs - max_abs) <= tolerance,
              what + ": the screen of the update alone");
        std::ranges::copy(values, round.layout.of(std::span(p), chunk).begin());
        return {};
      },
      serial));
  check(next == round.layout.chunk_count(), what + ": all chunks");
  return p;
}

void makes_the_hosts_update(const Context& context) {
  if (!is_gpu(context)) return;
  const auto gpus = gpus_of({context.device});
  struct Case {
    std::size_t values, chunk_values;
  };
  std::vector<Case> cases = {{1, 4096}, {1'000, 256}, {1'024, 256}, {999, 1'000}, {3'001, 1'001}};
  if (!context.is_small) cases.push_back({2'500'011, 1 << 20});
  for (const Case& c : cases) {
    for (std::size_t parts = 1; parts <= 4; ++parts) {
      for (const bool updates : {false, true}) {
        for (const bool residual : {false, true}) {
          const std::string what = std::to_string(c.values) + " values of " + std::to_string(parts);
          const Round round = round_of(c.values, c.chunk_values, parts, updates, residual);
          const Workers workers(gpus, round);
          const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
          check_same<float>(made_p(*update, round, what), round.p(), what);
        }
      }
    }
  }
  check(gpus->counts().summed == cases.size() * 16, "updates are counted");
}

void encodes_the_hosts_bytes(const Context& context, const std::string& text) {
  if (!is_gpu(context)) return;
  const auto gpus = gpus_of({context.device});
  const kernels::CodecSpec spec = kernels::parse_codec(text).value();
  const auto cpu = kernels::test_values::codec_of(text);
  for (const std::size_t parts : {3, 2}) {
    const Round round =
        round_of(context.is_small ? 5'300 : 700'001, context.is_small ? 1'500 : 1 << 16, parts, parts == 2, parts == 3);
    const Workers workers(gpus, round);
    const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
    const std::vector<float> p = made_p(*update, round, text);
    if (!require(update->takes(spec))) return;
    const auto expected = kernels::test_values::encode(*cpu, p, round.layout.chunk_values, kKey);
    std::size_t next = 0;
    require(update->encode(kKey, [&](std::size_t chunk, ByteSpan bytes) -> Status {
      check(chunk == next++, text + ": chunks in order");
      check_same(bytes, ByteSpan(expected.chunks[chunk].span()), text + ": a chunk");
      return {};
    }));
    check(next == expected.chunks.size(), text + ": all chunks");
  }
}

// A chunk is read when it is reduced, and not again.
void reduces_early(const Context& context) {
  if (!is_gpu(context)) return;
  const auto gpus = gpus_of({context.device});
  for (const bool updates : {false, true}) {
    const Round round = round_of(2'300, 500, 3, updates, true);
    Workers workers(gpus, round);
    const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
    const std::vector<std::vector<std::size_t>> steps = {{3}, {}, {0, 3, 1}};
    for (const std::vector<std::size_t>& chunks : steps) {
      require(update->reduce(chunks));
      for (const std::size_t chunk : chunks) workers.spoil(chunk);
    }
    check_same<float>(made_p(*update, round, "early"), round.p(), "some of it was reduced early");
  }
}

// Whoever calls learns where; and the next update is right.
void ends_with_the_first_error(const Context& context) {
  if (!is_gpu(context)) return;
  const auto gpus = gpus_of({context.device});
  Serial serial;
  Round round = round_of(3'500, 1'000, 2, false, true);
  const Workers good(gpus, round);
  round.vectors[1][1'777] = std::numeric_limits<float>::infinity();
  const Workers bad(gpus, round);
  const auto make = [&](const Workers& workers, const GpuUpdate::From& from, const GpuUpdate::LeaveP& leave) {
    return require(GpuUpdate::make(*gpus, workers.parts(), round.layout))->make_p(from, leave, serial);
  };
  const Error enough{Code::kCancelled, "enough"};
  const auto take = [](std::size_t, std::span<const float>, const auto&) { return Status(); };
  std::vector<std::size_t> left;
  const Status screened =
      make(bad, from_of(round), [&](std::size_t chunk, std::span<const float> p, const auto& found) -> Status {
        left.push_back(chunk);
        const Result<kernels::ScreenReport>& report = found.update;
        if (report.ok()) return {};
        check(report.error().message.find("1777") != std::string::npos, report.error().message);
        check(std::isinf(p[777]), "the value is there to look at");
        return report.error();
      });
  check(!screened.ok() && left == std::vector<std::size_t>{0, 1}, "a value that is not finite ends it");
  {
    const Workers gone(gpus, round);
    const Status refused = make(gone, from_of(round), [&](std::size_t, auto, const auto&) -> Status { return enough; });
    check(!refused.ok() && refused.error() == enough, "who takes p may end it, and nothing more reads the vectors");
  }
  GpuUpdate::From no_residual = from_of(round);
  no_residual.residual = [&](std::uint64_t first, std::span<float>) -> Status {
    if (first < 2'000) return {};
    return enough;
  };
  const Status unread = make(good, no_residual, take);
  check(!unread.ok() && unread.error() == enough, "so may who gives the residual");
  check(make(good, from_of(round), take).ok(), "and the next is made");

  const auto update = require(GpuUpdate::make(*gpus, good.parts(), round.layout));
  require(update->make_p(from_of(round), take, serial));
  check(require(update->takes(kernels::parse_codec("int8").value())), "int8 is there");
  for (const bool ends : {true, false}) {
    const Status encoded = update->encode(kKey, [&](std::size_t chunk, ByteSpan) -> Status {
      if (!ends || chunk < 2) return {};
      return enough;
    });
    check(encoded.ok() != ends && (!ends || encoded.error() == enough), "who takes chunks may end it, too");
  }
  check(!gpus->fault(), "none of this is a GPU's fault");
}

void says_that_there_is_no_room(const Context& context) {
  if (!is_gpu(context)) return;
  std::string warned;
  const auto gpus = gpus_of({context.device}, &warned);
  const Round round = round_of(100, 64, 2, true, false);
  const Workers workers(gpus, round);
  constexpr std::size_t kTooMany = std::size_t{1} << 50;
  const float* const nowhere = workers.parts().front().vector->values().data();
  for (int turn = 0; turn < 2; ++turn) {
    const auto update = require(GpuUpdate::make(*gpus, {{gpus->own(0, {nowhere, kTooMany}), 1}},
                                                {.value_count = kTooMany, .chunk_values = kernels::kChunkValuesMax}));
    check(update == nullptr, "the caller is to do without");
  }
  check(warned.find("no room for an update of 1125899906842624 values") == 0, warned);
  check(warned.find('\n') == warned.size() - 1, "it is said once: " + warned);
  check(!gpus->fault(), "that is no fault");
  const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
  check_same<float>(made_p(*update, round, "after it"), round.p(), "what has room is made");
}

void keeps_its_memory_until_it_is_released(const Context& context) {
  if (context.device.kind != kernels::DeviceKind::kEmulated) return;
  const auto gpus = gpus_of({context.device});
  const Round round = round_of(3'000, 500, 2, false, true), larger = round_of(5'000, 500, 2, false, true);
  const Workers workers(gpus, round), others(gpus, larger);
  const auto in_use = [&] { return kernels::emulated::memory_in_use(context.device.index); };
  const std::size_t before = in_use();
  std::size_t kept = 0;
  for (const bool again : {false, true}) {
    const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
    made_p(*update, round, "kept");
    require(update->takes(kernels::parse_codec("topk").value()));
    if (again) check(in_use() == kept, "the second update takes the first one's memory");
    kept = in_use();
    check(kept > before + 3'000 * sizeof(float), "an update takes memory");
  }
  check(in_use() == kept, "it is kept");
  made_p(*require(GpuUpdate::make(*gpus, others.parts(), larger.layout)), larger, "larger");
  check(in_use() > before + 5'000 * sizeof(float) && in_use() < kept + 2'000 * sizeof(float), "one set is kept");
  gpus->release();
  check(in_use() == before, "all of it is given back");
  {
    const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
    gpus->release();
    check_same<float>(made_p(*update, round, "released"), round.p(), "what is in use stays until it is done");
  }
  check(in_use() == before, "and is not kept then");
}

// Over several GPUs the sum is rounded to fp32 on each, and at each addition.
void adds_up_over_several(const Context& context) {
  if (!is_gpu(context)) return;
  for (const int count : {2, 3}) {
    std::vector<Device> devices;
    for (int i = 0; i < count; ++i) devices.push_back({context.device.kind, i});
    if (!kernels::check_device(devices.back()).ok()) return;
    std::vector<std::string> noted;
    const auto note = [&noted](const std::string& line) { noted.push_back(line); };
    const auto gpus = require(SiteGpus::make(devices, {.note = note}));
    check(noted.empty(), "what sums over GPUs are made with is not looked for before there is one");
    for (const std::size_t parts : {2, 3, 5}) {
      for (const bool updates : {false, true}) {
        const Round round = round_of(2'300, 500, parts, updates, true);
        Workers workers(gpus, round);
        const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
        const std::size_t first = 1;
        require(update->reduce({&first, 1}));
        workers.spoil(first);
        constexpr float kTolerance = 4.0F * 0x1p-21F;
        const std::vector<float> p = made_p(*update, round, "several GPUs", kTolerance);
        const std::vector<float> expected = round.p();
        for (std::size_t i = 0; i < p.size(); ++i) {
          if (!check(std::fabs(p[i] - expected[i]) <= kTolerance, "value " + std::to_string(i))) break;
        }
      }
    }
    check(noted.size() == static_cast<std::size_t>(count) - 1, "said once for each set of GPUs");  // the first 2, or 3
    check(!noted.empty() && noted.front().starts_with("sums over " + kernels::to_string(devices[0]) + ", "), "named");
  }
}

// The workers are other processes, as they are at a site.
void opens_what_workers_hand_over(const Context& context) {
  if (!is_gpu(context)) return;
  const auto gpus = gpus_of({context.device});
  const kernels::DeviceUuid uuid = gpus->uuids().front();
  const Lender lender(context.device, 5'000), other(context.device, 4'500);
  const std::size_t skip = 16, values = 4'000;
  Round round{.layout = {.value_count = values, .chunk_values = 1'500}, .updates = true};
  for (const std::vector<float>& lent : {lent_values(5'000), lent_values(4'500)}) {
    const std::size_t first = round.vectors.empty() ? skip : 0;
    round.vectors.emplace_back(lent.begin() + static_cast<std::ptrdiff_t>(first),
                               lent.begin() + static_cast<std::ptrdiff_t>(first + values));
    round.weights.push_back(static_cast<std::uint32_t>(3 + first));
  }
  const auto vector = require(gpus->open(uuid, lender.handle(), skip * sizeof(float), values));
  std::vector<float> read(500);
  require(vector->read(100, read));
  check_same<float>(read, std::span<const float>(round.vectors[0]).subspan(100, 500), "values of a worker");
  const std::vector<GpuPart> parts = {{vector, round.weights[0]},
                                      {require(gpus->open(uuid, other.handle(), 0, values)), round.weights[1]}};
  const auto update = require(GpuUpdate::make(*gpus, parts, round.layout));
  check_same<float>(made_p(*update, round, "lent"), round.p(), "an update of other processes' vectors");

  const auto refused = [&](const kernels::DeviceUuid& device, const kernels::MemoryHandle& of, std::uint64_t first,
                           std::uint64_t count, const std::string& why) {
    const auto opened = gpus->open(device, of, first, count);
    if (!check(!opened.ok(), "refused: " + why)) return;
    check(opened.error().code == Code::kInvalidArgument, opened.error().to_string());
    check(opened.error().message.find(why) != std::string::npos, opened.error().message);
  };
  refused({}, lender.handle(), 0, 10, "which this agent does not use");
  refused(uuid, lender.handle(), 8, 10, "expected a multiple of 16");
  refused(uuid, lender.handle(), 0, std::uint64_t{1} << 32, "too few for 4294967296 values");
  refused(uuid, lender.handle(), std::uint64_t{1} << 62, 1, "too few");
  refused(uuid, lender.handle(), 0, std::uint64_t{1} << 63, "too few");
  refused(uuid, {}, 0, 10, "");
  check(!gpus->fault(), "a worker's mistake is not a GPU's fault");
}

// A GPU that has failed is another thing than an update that cannot be made.
void remembers_that_a_gpu_has_failed(const Context& context) {
  if (context.device.kind != kernels::DeviceKind::kEmulated) return;
  const Round round = round_of(1'000, 256, 2, false, false);
  Serial serial;
  const auto take = [](std::size_t, std::span<const float>, const auto&) { return Status(); };
  const auto take_chunk = [](std::size_t, ByteSpan) { return Status(); };
  const std::size_t first = 0;
  std::vector<float> values(10);
  const std::vector<std::function<Status(GpuUpdate&, const WorkerVector&)>> calls = {
      [&](GpuUpdate& update, const WorkerVector&) { return update.reduce({&first, 1}); },
      [&](GpuUpdate& update, const WorkerVector&) { return update.make_p(from_of(round), take, serial); },
      [&](GpuUpdate& update, const WorkerVector&) { return update.encode(kKey, take_chunk); },
      [&](GpuUpdate&, const WorkerVector& vector) { return vector.read(0, values); },
  };
  for (const auto& call : calls) {
    const auto gpus = gpus_of({context.device});
    const Workers workers(gpus, round);
    const auto update = require(GpuUpdate::make(*gpus, workers.parts(), round.layout));
    require(update->make_p(from_of(round), take, serial));
    check(require(update->takes(kernels::parse_codec("int8").value())), "int8 is there");
    kernels::fail_emulated_devices(true);
    const Status failed = call(*update, *workers.parts().front().vector);
    kernels::fail_emulated_devices(false);
    check(!failed.ok() && failed.error().code == Code::kInternal, "the call fails");
    check(gpus->fault() == failed.error(), "and it is remembered why");
    check(gpus->counts().encoded == 0, "nothing was encoded");
  }
}

}  // namespace

void add_site_tests(std::vector<Test>& tests) {
  tests.push_back({"site, p", makes_the_hosts_update});
  for (const std::string& text : kernels::test_values::codec_texts()) {
    if (text.starts_with("dgc")) continue;  // its momentum is on the host, and so it is encoded there
    tests.push_back({"site, " + text, [text](const Context& context) { encodes_the_hosts_bytes(context, text); }});
  }
  tests.push_back({"site, early", reduces_early});
  tests.push_back({"site, errors", ends_with_the_first_error});
  tests.push_back({"site, no room", says_that_there_is_no_room});
  tests.push_back({"site, memory", keeps_its_memory_until_it_is_released});
  tests.push_back({"site, several GPUs", adds_up_over_several});
  tests.push_back({"site, a GPU fails", remembers_that_a_gpu_has_failed});
  tests.push_back({"site, opening", opens_what_workers_hand_over});
}

}  // namespace fluvial::gpu_test
