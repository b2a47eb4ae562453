#include "kernels/codecs/registry.h"

namespace fluvial::kernels {
namespace {

constexpr const CodecEntry* kEntries[] = {
    &kFp32Entry,  &kFp16Entry, &kBf16Entry, &kInt8Entry,     &kInt4Entry,     &kSignEntry, &kTopkEntry,
    &kRandkEntry, &kDgcEntry,  &kQsgdEntry, &kTernGradEntry, &kPowerSgdEntry, &kRingEntry, &kOnebitAdamEntry,
};

}  // namespace

std::span<const CodecEntry* const> codec_entries() { return kEntries; }

const CodecEntry* find_codec(CodecKind kind) {
  for (const CodecEntry* entry : kEntries) {
    if (entry->kind == kind) return entry;
  }
  return nullptr;
}

const CodecEntry* find_codec(std::string_view name) {
  for (const CodecEntry* entry : kEntries) {
    if (entry->name == name) return entry;
  }
  return nullptr;
}

std::string codec_names() {
  std::string names;
  for (const CodecEntry* entry : kEntries) names.append(names.empty() ? "" : ", ").append(entry->name);
  return names;
}

std::vector<std::string> codec_examples() {
  std::vector<std::string> examples;
  for (const CodecEntry* entry : kEntries) {
    std::string& text = examples.emplace_back(entry->name);
    if (!entry->required.empty()) text.append(":").append(entry->required);
  }
  return examples;
}

}  // namespace fluvial::kernels
