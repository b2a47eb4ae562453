// What the admin API is made of: a source a resource, each adds its routes here and is called in admin.cc.
#pragma once

#include <string>

#include "coordinator/service/admin/context.h"
#include "coordinator/service/admin/router.h"

namespace fluvial::coordinator::admin {

void add_status(Router& router);
void add_nodes(Router& router);
void add_tokens(Router& router);
void add_plans(Router& router);
void add_runs(Router& router);
void add_rounds(Router& router);
void add_timeline(Router& router);
void add_watch(Router& router);
void add_models(Router& router);
void add_backup(Router& router);
void add_events(Router& router);
void add_page(Router& router);
void add_audit(Router& router);
void add_authority(Router& router);
void add_operators(Router& router);
void add_uploads(Router& router);
void add_all(Router& router);  // every one of these

std::string status_json(const Context& context);

}  // namespace fluvial::coordinator::admin
