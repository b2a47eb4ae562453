// Who reads which model over the admin API. A model is read in many parts; the audit log has one entry of all of them,
// and no model leaves without one. Pure; not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "coordinator/logic/entry_meter.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/record.h"

namespace fluvial::coordinator {

// Of one person: some 2 MB of entries a day at most.
inline constexpr EntryMeter::Bound kModelReadsWritten{.at_once = 60, .each = std::chrono::seconds(10)};
inline constexpr Duration kModelReadRemembered = std::chrono::hours(1);  // since its last part
inline constexpr std::size_t kModelReadsKept = 100;                      // of one person

class ModelReads {
 public:
  // A part is asked for. Whether an entry must be written before it is given; kResourceExhausted: too many models at
  // once, this one is not to be given. `person`: tells one from another.
  Result<bool> asked(const std::string& person, const round::ModelKey& model, TimePoint now);
  void written(const std::string& person, const round::ModelKey& model, TimePoint now);  // durably

 private:
  struct Reader {
    EntryMeter meter{kModelReadsWritten};
    std::map<round::ModelKey, TimePoint> last;
  };
  std::map<std::string, Reader> readers_;  // people whom the settings or their certificates let in
};

}  // namespace fluvial::coordinator
