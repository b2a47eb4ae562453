#include "cli/bound/tree_bound.h"

namespace fluvial::cli::bound {

double TreeShape::inner_nodes() const { return aggregators == 0 ? 0.0 : static_cast<double>(aggregators + tiers - 1); }

double TreeShape::edges() const { return static_cast<double>(sites) + inner_nodes(); }

TreeBytes least_bytes(const TreeShape& shape, const CodecCosts& codec) {
  const auto params = static_cast<double>(shape.params);
  return {.up = shape.edges() * params * codec.entropy_bytes, .down = shape.edges() * shape.model_bytes()};
}

TreeBytes encoded_bytes(const TreeShape& shape, const CodecCosts& codec) {
  const auto params = static_cast<double>(shape.params);
  return {.up = shape.edges() * params * codec.update_bytes, .down = shape.edges() * shape.model_bytes()};
}

TreeBound bound_of(const TreeShape& shape, const TreeBytes& moved, const MachineCosts& machine,
                   const CodecCosts& codec) {
  const auto sites = static_cast<double>(shape.sites);
  const auto params = static_cast<double>(shape.params);
  const double tls_bytes = moved.up + moved.down;
  TreeBound bound;
  bound.cipher_s = tls_bytes * (machine.seal_s_byte + machine.open_s_byte);
  bound.tcp_s = tls_bytes * machine.tcp_s_byte;
  bound.kernels_s = params * (sites * codec.site_s + shape.edges() * codec.parent_s + codec.root_s);
  bound.disk_bytes = (sites + 1) * shape.model_bytes();
  bound.files_s = bound.disk_bytes * machine.file_cpu_s_byte;
  bound.worker_s = sites * params * codec.worker_s;
  bound.digests_s = 2 * tls_bytes * machine.sha256_s_byte;
  // A worker writes its result; an agent reads it and the base, writes p. Both ends touch each byte that travels once.
  // A parent writes its sum; the root reads it, reads the model and writes the next.
  bound.memory_bytes = sites * 16 * params + 2 * tls_bytes + (shape.inner_nodes() + 1) * 8 * params + 16 * params;
  bound.memory_s = bound.memory_bytes * machine.copy_s_byte / 2;
  bound.disk_s = bound.disk_bytes * machine.disk_s_byte;
  return bound;
}

}  // namespace fluvial::cli::bound
