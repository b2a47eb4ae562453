#include "coordinator/logic/model_reads.h"

#include <algorithm>

namespace fluvial::coordinator {

Result<bool> ModelReads::asked(const std::string& person, const round::ModelKey& model, TimePoint now) {
  Reader& reader = readers_[person];
  std::erase_if(reader.last, [now](const auto& read) { return now - read.second >= kModelReadRemembered; });
  if (const auto known = reader.last.find(model); known != reader.last.end()) {
    known->second = now;
    return false;
  }
  if (!reader.meter.happened(now)) {
    return Error{Code::kResourceExhausted, "too many models read one after the other; try again in ten seconds"};
  }
  return true;
}

void ModelReads::written(const std::string& person, const round::ModelKey& model, TimePoint now) {
  auto& last = readers_[person].last;
  if (last.size() >= kModelReadsKept && !last.contains(model)) {
    last.erase(std::ranges::min_element(last, {}, [](const auto& read) { return read.second; }));
  }
  last[model] = now;
}

}  // namespace fluvial::coordinator
