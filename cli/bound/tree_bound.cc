#include "cli/bound/tree_bound.h"

namespace fluvial::cli::bound {

double TreeShape::inner_nodes() const { return aggregators == 0 ? 0.0 : static_cast<double>(aggregators + tiers - 1); }

double TreeShape::edges() const { return static_cast<double>(sites) + inner_nodes(); }

TreeBytes least_bytes(const TreeShape& shape, const CodecCosts& codec, const DownCosts& down) {
  const double values = shape.edges() * static_cast<double>(shape.params);
  return {.up = values * codec.entropy_bytes, .down = values * down.entropy_bytes};
}

TreeBytes encoded_bytes(const TreeShape& shape, const CodecCosts& codec, const DownCosts& down) {
  const double values = shape.edges() * static_cast<double>(shape.params);
  return {.up = values * codec.update_bytes, .down = values * down.sent_bytes};
}

namespace {

// What `down` reads and writes beside what travels, in bytes a parameter: the root reads the master and writes what it
// decodes to, a child writes that; a difference has its base read at each.
double down_memory_bytes(const TreeShape& shape, DownCosts::Kind kind) {
  switch (kind) {
    case DownCosts::Kind::kWhole: return 0;
    case DownCosts::Kind::kRounded: return 8 + shape.edges() * 4;
    case DownCosts::Kind::kDelta: return 12 + shape.edges() * 8;
  }
  return 0;
}

}  // namespace

TreeBound bound_of(const TreeShape& shape, const TreeBytes& moved, const MachineCosts& machine, const CodecCosts& codec,
                   const DownCosts& down) {
  const auto sites = static_cast<double>(shape.sites);
  const auto params = static_cast<double>(shape.params);
  const double tls_bytes = moved.up + moved.down;
  TreeBound bound;
  bound.cipher_s = tls_bytes * (machine.seal_s_byte + machine.open_s_byte);
  bound.tcp_s = tls_bytes * machine.tcp_s_byte;
  bound.kernels_s =
      params * (sites * codec.site_s + shape.edges() * (codec.parent_s + down.child_s) + codec.root_s + down.root_s);
  const double models_written = down.kind == DownCosts::Kind::kDelta ? 2 : 1;
  bound.disk_bytes = (sites + models_written) * shape.model_bytes();
  bound.files_s = bound.disk_bytes * machine.file_cpu_s_byte;
  bound.worker_s = sites * params * codec.worker_s;
  bound.digests_s = (2 * moved.up + (shape.edges() + 1) * shape.model_bytes()) * machine.sha256_lanes_s_byte +
                    shape.model_bytes() * machine.sha256_s_byte;
  // A worker writes its result; an agent reads it and the base, writes p. Both ends touch each byte that travels once.
  // A parent writes its sum; the root reads it, reads the model and writes the next.
  bound.memory_bytes = sites * 16 * params + 2 * tls_bytes + (shape.inner_nodes() + 1) * 8 * params + 16 * params +
                       down_memory_bytes(shape, down.kind) * params;
  bound.memory_s = bound.memory_bytes * machine.copy_s_byte / 2;
  bound.disk_s = bound.disk_bytes * machine.disk_s_byte;
  return bound;
}

}  // namespace fluvial::cli::bound
