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
  if (reader.last.size() >= kModelReadsKept) {
    reader.last.erase(std::ranges::min_element(reader.last, {}, [](const auto& read) { return read.second; }));
  }
  reader.last.emplace(model, now);
  return true;
}

void ModelReads::forget(const std::string& person, const round::ModelKey& model) {
  if (const auto reader = readers_.find(person); reader != readers_.end()) reader->second.last.erase(model);
}

}  // namespace fluvial::coordinator
