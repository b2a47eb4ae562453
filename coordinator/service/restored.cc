#include "coordinator/service/restored.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/service/backup.h"
#include "coordinator/service/machine_users.h"
#include "core/base/clock.h"
#include "core/identity/random.h"
#include "core/store/audit_log.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"

namespace fluvial::coordinator {

Status mark_restored(const config::CoordinatorSettings& settings, store::FileSystem& files, Epoch above,
                     const telemetry::Logger& log) {
  const WallTime now = SystemClock().wall_now();
  FLUVIAL_TRY(check_restored(files, settings.data_dir, true));
  const std::string path = store::join_path(settings.data_dir, "journal.sqlite");
  FLUVIAL_ASSIGN(const bool there, files.exists(path));
  if (!there) return Error{Code::kNotFound, path + " is not there: restore the coordinator's folder first"};
  FLUVIAL_ASSIGN(const std::unique_ptr<store::CoordinatorJournal> journal,
                 store::CoordinatorJournal::open(files, path));
  FLUVIAL_ASSIGN(store::ModelStore models,
                 store::ModelStore::open(files, store::join_path(settings.data_dir, "models")));
  FLUVIAL_ASSIGN(const std::vector<round::ModelKey> referenced, journal->referenced_models());
  const std::string folder = "aside-" + std::to_string(now.time_since_epoch().count());
  FLUVIAL_ASSIGN(const std::size_t aside, models.set_aside({referenced.begin(), referenced.end()}, folder));
  if (aside > 0) {
    log.warn("model files newer than the journal were set aside; they are kept, and not read",
             {{"files", aside}, {"folder", store::join_path(settings.data_dir, "models/" + folder)}});
  }
  const round::HistoryId id(std::max<std::uint64_t>(identity::random_u64(), 1));
  const store::AuditEntry entry{.kind = store::AuditKind::kRestored,
                                .by = store::AuditBy::kUser,
                                .user = own_user(),
                                .detail = "history " + std::to_string(id.value())};
  FLUVIAL_ASSIGN(const round::History history,
                 store::AuditLog(*journal).with(entry, now, [&] { return journal->begin_history(id, above, now); }));
  const Status unmarked = files.remove(store::join_path(settings.data_dir, kRestoredFile));
  if (!unmarked.ok() && unmarked.error().code != Code::kNotFound) return unmarked;
  for (const round::Fork& fork : history.forks) {
    log.info("the run goes on from its last commit", {{"run", fork.run}, {"round", fork.round}});
  }
  log.info(
      "a new history begins: start the coordinator, repeat the revocations made since the backup, and enrol again "
      "who was enrolled since",
      {{"history", std::to_string(history.id.value())}, {"began_at_epoch", history.began}});
  return {};
}

}  // namespace fluvial::coordinator
