// What a round of a tree cannot get below on one machine: bytes, processor, memory, disk. Pure arithmetic on costs that
// were measured elsewhere (probes.h).
#pragma once

#include <cstdint>

namespace fluvial::cli::bound {

// Of this machine, in seconds a byte unless said otherwise. Processor-seconds, but for copy and disk, which are what a
// clock shows.
struct MachineCosts {
  double cores = 1;
  double seal_s_byte = 0;          // AES-GCM, the sender's end
  double open_s_byte = 0;          // and the receiver's
  double tcp_s_byte = 0;           // the kernel's share, both ends of a loopback connection
  double sha256_s_byte = 0;        // of a stream
  double sha256_lanes_s_byte = 0;  // of pieces of equal length, several at a time
  double file_cpu_s_byte = 0;      // to write a file, fsync included
  double copy_s_byte = 0;          // memcpy: reads a byte and writes one
  double disk_s_byte = 0;          // to write and fsync
  double alpha_s = 0;              // half a round trip of one byte on the loopback
};

// Of a codec on this machine, in processor-seconds a parameter.
struct CodecCosts {
  double site_s = 0;         // pseudo-gradient, screen, encode
  double parent_s = 0;       // decode and add, for each child
  double root_s = 0;         // mean and server step
  double worker_s = 0;       // what the bench's worker makes up
  double update_bytes = 4;   // encoded
  double entropy_bytes = 4;  // what the best coder would leave of them (entropy.h)
};

// Of the way down (a plan's `down`) on this machine, in processor-seconds a parameter.
struct DownCosts {
  enum class Kind { kWhole, kRounded, kDelta };
  Kind kind = Kind::kWhole;
  double root_s = 0;         // difference, encode, decode: once a round
  double child_s = 0;        // decode, at each node below the root
  double sent_bytes = 4;     // of a model that a child has the one before of
  double entropy_bytes = 4;  // what the best coder would leave of them; 4: the model itself
};

struct TreeShape {
  std::uint64_t sites = 1;
  std::uint64_t aggregators = 0;  // regions; above them one aggregator a tier
  std::uint64_t tiers = 1;
  std::uint64_t params = 0;

  double inner_nodes() const;  // all aggregators
  double edges() const;        // connections from child to parent
  double model_bytes() const { return 4.0 * static_cast<double>(params); }
};

// A round's payload over all edges.
struct TreeBytes {
  double up = 0;
  double down = 0;
};

// What must travel: every edge carries a sum of at least one update up, whose entropy is no less than one update's, and
// the model down in its form.
TreeBytes least_bytes(const TreeShape& shape, const CodecCosts& codec, const DownCosts& down);
// What the codecs send: updates as encoded; an aggregator's partial counts no less than its fullest child's update.
TreeBytes encoded_bytes(const TreeShape& shape, const CodecCosts& codec, const DownCosts& down);

struct TreeBound {
  double cipher_s = 0;  // processor-seconds of all nodes a round, from here to worker_s
  double tcp_s = 0;
  double kernels_s = 0;
  double files_s = 0;  // p once at each site; at the root the model, and what sites train from after a difference
  double worker_s = 0;
  // Beside the bound: of every update at both ends of its edge and of the model (decoded) at each node, in lanes; and
  // of the model at the root once more, as the stream that names it.
  double digests_s = 0;
  double memory_bytes = 0;  // read or written at least
  double memory_s = 0;      // by all cores together, as fast as one copies
  double disk_bytes = 0;
  double disk_s = 0;
  // The headline's divisor: cipher, TCP, kernels, files and workers over the cores.
  double processor_s(const MachineCosts& machine) const {
    return (cipher_s + tcp_s + kernels_s + files_s + worker_s) / machine.cores;
  }
  double digested_s(const MachineCosts& machine) const { return processor_s(machine) + digests_s / machine.cores; }
};

// `moved` is what travels over TLS, measured or encoded_bytes().
TreeBound bound_of(const TreeShape& shape, const TreeBytes& moved, const MachineCosts& machine, const CodecCosts& codec,
                   const DownCosts& down);

}  // namespace fluvial::cli::bound
