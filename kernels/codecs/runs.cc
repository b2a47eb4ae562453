#include "kernels/codecs/runs.h"

#include <algorithm>

#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels {

// work(run, at): the part of a run that lies in the piece, and where in the chunk that begins.
template <typename Work>
void RunCodec::each_run(ByteSpan bytes, std::size_t value_count, std::size_t first, std::size_t length,
                        const Work& work) const {
  for (std::size_t done = 0; done < length;) {
    CodeRun run = run_at(bytes, value_count, first + done);
    run.value_count = std::min(run.value_count, length - done);
    work(run, first + done);
    done += run.value_count;
  }
}

void RunCodec::decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const {
  each_run(bytes, value_count, first, out.size(), [&](const CodeRun& run, std::size_t at) {
    value_loops_.decode(run.codes, run.value_count, run.scale, out.data() + (at - first));
  });
}

void RunCodec::residual_piece(ByteSpan bytes, std::size_t first, std::span<const float> values, std::size_t length,
                              float* out) const {
  each_run(bytes, values.size(), first, length, [&](const CodeRun& run, std::size_t at) {
    value_loops_.difference(run.codes, run.value_count, run.scale, values.data() + at, out + at);
  });
}

void RunCodec::add_piece(ByteSpan bytes, std::size_t first, float weight, std::size_t length,
                         std::span<float> sum) const {
  each_run(bytes, sum.size(), first, length, [&](const CodeRun& run, std::size_t at) {
    value_loops_.add(run.codes, run.value_count, run.scale, weight, sum.data() + at);
  });
}

bool RunCodec::accumulate_small_piece(ByteSpan bytes, std::size_t first, double factor, std::size_t length,
                                      std::span<std::int64_t> sum) const {
  std::uint32_t most = 0;
  each_run(bytes, sum.size(), first, length, [&](const CodeRun& run, std::size_t) {
    most = std::max(most, value_loops_.bound(run.codes, run.value_count, run.scale));
  });
  if (!(ops::fixed_product(ops::bits_float(most), factor) < ops::kSmallTermLimit)) return false;  // NaN too
  each_run(bytes, sum.size(), first, length, [&](const CodeRun& run, std::size_t at) {
    value_loops_.accumulate(run.codes, run.value_count, run.scale, factor, sum.data() + at);
  });
  return true;
}

}  // namespace fluvial::kernels
