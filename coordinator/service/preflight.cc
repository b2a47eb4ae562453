#include "coordinator/service/preflight.h"

#include <unistd.h>

#include <string>

#include "coordinator/service/admin/access.h"

namespace fluvial::coordinator {

Status check_place(const config::CoordinatorSettings& settings, store::FileSystem& files) {
  const auto people = admin::People::of(::geteuid(), settings.admin_users, settings.admin_readers);
  if (!people.ok()) return people.error();
  FLUVIAL_ASSIGN(const bool is_founded, files.exists(store::join_path(settings.data_dir, "journal.sqlite")));
  FLUVIAL_ASSIGN(const bool is_member, files.exists(store::join_path(settings.data_dir, "identity")));
  if (is_founded || !is_member) return {};
  return Error{Code::kInvalidArgument, "data_dir = '" + settings.data_dir + "': " + settings.data_dir +
                                           " is a member's folder (it holds identity/): a coordinator needs one of "
                                           "its own"};
}

Status found_federation(store::CoordinatorJournal& journal, const config::CoordinatorSettings& settings, WallTime now,
                        const telemetry::Logger& log) {
  FLUVIAL_TRY(journal.found({settings.federation, now}));
  log.info("a new federation is founded", {{"federation", settings.federation}, {"folder", settings.data_dir}});
  return {};
}

}  // namespace fluvial::coordinator
