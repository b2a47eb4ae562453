// The declarations, subject by subject. Inside this room only.
#pragma once

#include "core/telemetry/declared.h"

namespace fluvial::telemetry {

Subject process_subject();
Subject sessions_subject();
Subject disk_subject();
Subject parent_subject();
Subject bytes_subject();
Subject rounds_subject();
Subject times_subject();
Subject runs_subject();
Subject members_subject();
Subject site_subject();

// Labels that several of them have.
Label error_label(std::string_view name);  // the closed list of error codes
Label tier_label();                        // parent, children
Label name_label();                        // of what workers report

}  // namespace fluvial::telemetry
