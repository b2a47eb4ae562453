#include "cli/bound/headline.h"

#include "cli/bound/probes.h"

namespace fluvial::cli::bound {

TreeBytes moved_bytes(const TreeShape& shape, double up_per_site, double up_into_root) {
  const double from_sites = static_cast<double>(shape.sites) * up_per_site;
  return {.up = shape.aggregators == 0 ? from_sites : from_sites + up_into_root,
          .down = shape.edges() * shape.model_bytes()};
}

Result<Headline> headline(const TreeShape& shape, const std::string& codec, const TreeBytes& moved, double round_s,
                          const std::string& folder) {
  Headline found;
  FLUVIAL_ASSIGN(found.codec, probe_codec(codec, shape.params));
  FLUVIAL_ASSIGN(found.machine, probe_machine(folder));
  found.moved = moved;
  found.bound = bound_of(shape, moved, found.machine, found.codec);
  found.processor_s = found.bound.processor_s(found.machine);
  found.ratio = round_s / found.processor_s;
  return found;
}

}  // namespace fluvial::cli::bound
