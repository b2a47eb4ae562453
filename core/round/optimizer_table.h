// The page of the optimizers, from the table in optimizer.cc that everything about their texts comes from.
#pragma once

#include <string>

namespace fluvial::round {

std::string optimizers_markdown();  // the tables in docs/operations/plan.md; a test compares them

}  // namespace fluvial::round
