// The list of codecs: each one's name, its options, and how it is made. Internal.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/codec.h"

namespace fluvial::kernels {

struct CodecOption {
  std::string_view key;
  Status (*set)(CodecSpec& spec, std::string_view value);  // the message says what was expected
  std::string (*get)(const CodecSpec& spec);
};

struct CodecEntry {
  CodecKind kind;
  std::string_view name;
  std::span<const CodecOption> options;
  Status (*check)(const CodecSpec& spec);  // ranges
  std::unique_ptr<Codec> (*make)(const CodecSpec& spec, cpu::Target target);
  double ratio = CodecSpec{}.ratio;  // what a text without that option means
  std::string_view required = {};    // an example of the options that have no default
};

std::span<const CodecEntry* const> codec_entries();
const CodecEntry* find_codec(CodecKind kind);
const CodecEntry* find_codec(std::string_view name);

// One a codec, each in the source of its codec.
extern const CodecEntry kFp32Entry;
extern const CodecEntry kFp16Entry;
extern const CodecEntry kBf16Entry;
extern const CodecEntry kInt8Entry;
extern const CodecEntry kSignEntry;
extern const CodecEntry kInt4Entry;
extern const CodecEntry kQsgdEntry;
extern const CodecEntry kTernGradEntry;
extern const CodecEntry kTopkEntry;
extern const CodecEntry kRandkEntry;
extern const CodecEntry kDgcEntry;
extern const CodecEntry kPowerSgdEntry;
extern const CodecEntry kRingEntry;
extern const CodecEntry kOnebitAdamEntry;

}  // namespace fluvial::kernels
