#include "cli/bound/headline.h"

#include "cli/bound/probes.h"

namespace fluvial::cli::bound {

TreeBytes moved_bytes(const TreeShape& shape, const MeasuredRound& measured, const DownCosts& down) {
  const double from_sites = static_cast<double>(shape.sites) * measured.up_per_site;
  return {.up = shape.aggregators == 0 ? from_sites : from_sites + measured.up_into_root,
          .down = shape.edges() * static_cast<double>(shape.params) * down.sent_bytes};
}

Result<Headline> headline(const TreeShape& shape, const Forms& forms, const std::optional<MeasuredRound>& measured,
                          const std::string& folder) {
  Headline found;
  FLUVIAL_ASSIGN(found.codec, probe_codec(forms.codec, shape.params));
  FLUVIAL_ASSIGN(found.down, probe_down(forms.down, shape.params));
  FLUVIAL_ASSIGN(found.machine, probe_machine(folder));
  found.moved = measured ? moved_bytes(shape, *measured, found.down) : encoded_bytes(shape, found.codec, found.down);
  found.bound = bound_of(shape, found.moved, found.machine, found.codec, found.down);
  found.processor_s = found.bound.processor_s(found.machine);
  if (measured) {
    found.ratio = measured->round_s / found.processor_s;
    found.digested_ratio = measured->round_s / found.bound.digested_s(found.machine);
  }
  return found;
}

}  // namespace fluvial::cli::bound
