// A dense codec whose chunks are runs of codes of one kind, each run with a scale: its pieces are worked on without
// being decoded to memory first.
#pragma once

#include "kernels/codecs/dense.h"
#include "kernels/cpu/dense_loops.h"

namespace fluvial::kernels {

// Codes of consecutive values, beginning at a byte.
struct CodeRun {
  const std::byte* codes;
  std::size_t value_count;
  float scale;
};

class RunCodec : public DenseCodec {
 public:
  RunCodec(const CodecSpec& spec, cpu::Target target, cpu::ValueLoops cpu::DenseLoops::* format)
      : DenseCodec(spec, cpu::loops(target)),
        dense_loops_(cpu::dense_loops(target)),
        value_loops_(dense_loops_.*format) {}

 protected:
  // The longest run that begins with value `first` of a chunk of value_count that check_format accepted.
  virtual CodeRun run_at(ByteSpan bytes, std::size_t value_count, std::size_t first) const = 0;

  void decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const final;
  void residual_piece(ByteSpan bytes, std::size_t first, std::span<const float> values, std::size_t length,
                      float* out) const final;
  void add_piece(ByteSpan bytes, std::size_t first, float weight, std::size_t length, std::span<float> sum) const final;
  bool accumulate_small_piece(ByteSpan bytes, std::size_t first, double factor, std::size_t length,
                              std::span<std::int64_t> sum) const final;

  const cpu::DenseLoops& dense_loops() const { return dense_loops_; }
  const cpu::ValueLoops& value_loops() const { return value_loops_; }

 private:
  template <typename Work>
  void each_run(ByteSpan bytes, std::size_t value_count, std::size_t first, std::size_t length, const Work& work) const;

  const cpu::DenseLoops& dense_loops_;
  const cpu::ValueLoops& value_loops_;
};

}  // namespace fluvial::kernels
