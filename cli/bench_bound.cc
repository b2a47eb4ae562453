// fluvial bench bound: what a round cannot get below on this machine, beside what was measured.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/bench.h"
#include "cli/bench_result.h"
#include "cli/bound/collectives.h"
#include "cli/bound/headline.h"
#include "cli/bound/probes.h"
#include "cli/format.h"
#include "cli/json.h"
#include "cli/table.h"
#include "cli/work_folder.h"
#include "core/aggregate/down.h"
#include "core/aggregate/down_forms.h"
#include "core/aggregate/plan_codec.h"
#include "kernels/codec.h"

namespace fluvial::cli {
namespace {

struct BoundOptions {
  bound::TreeShape shape{.sites = 4, .aggregators = 0, .tiers = 1, .params = 10'000'000};
  bound::Forms forms;
  std::string tree;  // what bench tree --json wrote; its shape then
  std::string work_dir;
  bool json = false;
};

struct Report {
  bound::TreeShape shape;
  bound::Forms forms;
  std::optional<BenchResult> measured;
  bound::TreeBytes least;
  bound::Headline head;  // of the encoded bytes, or of the measured ones
  bound::LineModel line;
  std::vector<bound::NamedCost> collectives;
};

double measured_cpu_s(const simulator::MeasuredRun& run) {
  const auto rounds = static_cast<double>(run.rounds);
  return (static_cast<double>(run.sites) * run.site_cpu_s +
          static_cast<double>(run.aggregators) * run.aggregator_cpu_s + run.coordinator_cpu_s) /
         rounds;
}

Result<Report> make_report(const BoundOptions& options, const std::string& folder) {
  Report report{.shape = options.shape, .forms = options.forms};
  if (!options.tree.empty()) {
    FLUVIAL_ASSIGN(report.measured, read_bench_result(options.tree));
    const simulator::MeasuredRun& run = report.measured->run;
    report.forms = {report.measured->codec, report.measured->down};
    report.shape = {.sites = run.sites,
                    .aggregators = run.aggregators,
                    .tiers = std::max<std::uint64_t>(report.measured->tiers, 1),
                    .params = run.values};
  }
  std::optional<bound::MeasuredRound> measured;
  if (report.measured) {
    measured = {.up_per_site = report.measured->run.update_bytes,
                .up_into_root = report.measured->run.root_up_bytes,
                .round_s = report.measured->round_p50_s};
  }
  FLUVIAL_ASSIGN(report.head, bound::headline(report.shape, report.forms, measured, folder));
  report.least = bound::least_bytes(report.shape, report.head.codec, report.head.down);
  const bound::MachineCosts& machine = report.head.machine;
  report.line = {.alpha_s = machine.alpha_s,
                 .beta_s_byte = machine.seal_s_byte + machine.tcp_s_byte + machine.open_s_byte,
                 .gamma_s_byte = bound::probe_addition()};
  report.collectives = bound::all_collectives(report.shape.sites, report.shape.aggregators, report.shape.model_bytes());
  return report;
}

json::object to_json(const bound::MachineCosts& machine, const bound::LineModel& line) {
  return {{"cores", machine.cores},
          {"aes_gcm_seal_seconds_per_byte", machine.seal_s_byte},
          {"aes_gcm_open_seconds_per_byte", machine.open_s_byte},
          {"loopback_tcp_seconds_per_byte", machine.tcp_s_byte},
          {"sha256_seconds_per_byte", machine.sha256_s_byte},
          {"sha256_in_lanes_seconds_per_byte", machine.sha256_lanes_s_byte},
          {"memcpy_seconds_per_byte", machine.copy_s_byte},
          {"fsynced_write_seconds_per_byte", machine.disk_s_byte},
          {"fsynced_write_cpu_seconds_per_byte", machine.file_cpu_s_byte},
          {"alpha_seconds", line.alpha_s},
          {"beta_seconds_per_byte", line.beta_s_byte},
          {"gamma_seconds_per_byte", line.gamma_s_byte}};
}

json::object to_json(const Report& report) {
  const bound::TreeBound& bound = report.head.bound;
  json::array collectives;
  for (const bound::NamedCost& named : report.collectives) {
    collectives.push_back(json::object{{"name", named.name},
                                       {"steps", named.cost.steps},
                                       {"line_bytes", named.cost.line_bytes},
                                       {"reduced_bytes", named.cost.reduced_bytes},
                                       {"seconds", named.cost.seconds(report.line)}});
  }
  json::object object{{"sites", report.shape.sites},
                      {"aggregators", report.shape.aggregators},
                      {"tiers", report.shape.tiers},
                      {"params", report.shape.params},
                      {"codec", report.forms.codec},
                      {"down", report.forms.down},
                      {"machine", to_json(report.head.machine, report.line)},
                      {"bytes_up_least", report.least.up},
                      {"bytes_down_least", report.least.down},
                      {"bytes_up", report.head.moved.up},
                      {"bytes_down", report.head.moved.down},
                      {"cipher_seconds", bound.cipher_s},
                      {"tcp_seconds", bound.tcp_s},
                      {"kernel_seconds", bound.kernels_s},
                      {"down_root_seconds_per_parameter", report.head.down.root_s},
                      {"down_child_seconds_per_parameter", report.head.down.child_s},
                      {"file_cpu_seconds", bound.files_s},
                      {"worker_seconds", bound.worker_s},
                      {"digest_seconds", bound.digests_s},
                      {"processor_bound_seconds", report.head.processor_s},
                      {"memory_bytes", bound.memory_bytes},
                      {"memory_seconds", bound.memory_s},
                      {"disk_bytes", bound.disk_bytes},
                      {"disk_seconds", bound.disk_s},
                      {"collectives", std::move(collectives)}};
  if (report.measured) {
    object["round_seconds"] = report.measured->round_p50_s;
    object["cpu_seconds_per_round"] = measured_cpu_s(report.measured->run);
    object["round_over_processor_bound"] = report.head.ratio;
    object["round_over_processor_bound_with_digests"] = report.head.digested_ratio;
  }
  return object;
}

std::string speed(double seconds_per_byte) { return fmt::format("{:.2f} GB/s", 1e-9 / seconds_per_byte); }

void print_machine(const Io& io, const Report& report) {
  const bound::MachineCosts& machine = report.head.machine;
  Table table({{"THIS MACHINE, ONE CORE"}, {"", Align::kRight}});
  table.add({"AES-128-GCM, seal and open", speed(machine.seal_s_byte) + ", " + speed(machine.open_s_byte)});
  table.add({"TCP over the loopback, both ends", speed(machine.tcp_s_byte)});
  table.add(
      {"SHA-256, a stream and in lanes", speed(machine.sha256_s_byte) + ", " + speed(machine.sha256_lanes_s_byte)});
  table.add({"memcpy", speed(machine.copy_s_byte)});
  table.add({"write and fsync, on the clock", speed(machine.disk_s_byte)});
  table.add({"a message over the loopback (alpha)", fmt::format("{:.1f} us", machine.alpha_s * 1e6)});
  io.print(table.render(io.terminal()));
}

void print_bounds(const Io& io, const Report& report) {
  const bound::TreeBound& bound = report.head.bound;
  Table table({{"A ROUND"}, {"AT LEAST", Align::kRight}, {report.measured ? "MEASURED" : "ENCODED", Align::kRight}});
  table.add({"bytes up, all edges", format_bytes(report.least.up), format_bytes(report.head.moved.up)});
  table.add({"bytes down, all edges", format_bytes(report.least.down), format_bytes(report.head.moved.down)});
  table.add({"processor: cipher", format_seconds(bound.cipher_s), ""});
  table.add({"processor: TCP", format_seconds(bound.tcp_s), ""});
  table.add({"processor: kernels", format_seconds(bound.kernels_s), ""});
  table.add({"processor: files", format_seconds(bound.files_s), ""});
  table.add({"processor: the bench's workers", format_seconds(bound.worker_s), ""});
  const std::string used = report.measured ? format_seconds(measured_cpu_s(report.measured->run)) : "";
  table.add({"processor, all", format_seconds(report.head.processor_s * report.head.machine.cores), used});
  table.add({"memory, " + format_bytes(bound.memory_bytes), format_seconds(bound.memory_s), ""});
  table.add({"disk, " + format_bytes(bound.disk_bytes), format_seconds(bound.disk_s), ""});
  const std::string took = report.measured ? format_seconds(report.measured->round_p50_s) : "";
  table.add({fmt::format("round: processor over {:.0f} cores", report.head.machine.cores),
             format_seconds(report.head.processor_s), took});
  io.print("\n" + table.render(io.terminal()));
  io.print(
      fmt::format("digests of updates and models take {} of the processor more\n", format_seconds(bound.digests_s)));
  if (!report.measured) return;
  io.print(fmt::format("the round takes {:.2f} times its processor bound, {:.2f} times that with the digests\n",
                       report.head.ratio, report.head.digested_ratio));
}

void print_collectives(const Io& io, const Report& report) {
  Table table({{"ALL-REDUCE OF THE SITES, FP32"},
               {"STEPS", Align::kRight},
               {"BYTES ON A LINE", Align::kRight},
               {"BYTES ADDED", Align::kRight},
               {"TIME", Align::kRight}});
  for (const bound::NamedCost& named : report.collectives) {
    table.add({named.name, fmt::format("{:.0f}", named.cost.steps), format_bytes(named.cost.line_bytes),
               format_bytes(named.cost.reduced_bytes), format_seconds(named.cost.seconds(report.line))});
  }
  io.print("\n" + table.render(io.terminal()));
  io.print("by the textbooks' model: each node with a processor and a full-duplex line of its own\n");
}

int run_bound(const Io& io, const BoundOptions& options) {
  const auto down = aggregate::parse_down(options.forms.down);
  if (!down.ok()) return fail(io, "bench bound: --down", down.error(), kUsage);
  auto folder = WorkFolder::open(options.work_dir, false, "bound");
  if (!folder.ok()) return fail(io, "bench bound", folder.error(), kUsage);
  const auto report = make_report(options, folder->path());
  if (!report.ok()) {
    return fail(io, "bench bound", report.error(), report.error().code == Code::kInvalidArgument ? kUsage : kFailed);
  }
  if (options.json) {
    io.print(pretty(to_json(*report)));
    return kDone;
  }
  print_machine(io, *report);
  print_bounds(io, *report);
  print_collectives(io, *report);
  return kDone;
}

}  // namespace

void add_bench_bound_command(CLI::App& bench, Commands& commands) {
  const auto options = std::make_shared<BoundOptions>();
  CLI::App* bound = bench.add_subcommand("bound", "what a round of a tree cannot get below on this machine");
  const auto number = [bound](const std::string& flag, std::uint64_t& value, const std::string& help,
                              std::uint64_t least, std::uint64_t most) {
    return bound->add_option(flag, value, help)
        ->type_name("N")
        ->check(whole_number(least, most))
        ->capture_default_str();
  };
  CLI::Option* tree =
      bound->add_option("--tree", options->tree, "what fluvial bench tree --json wrote, to stand beside the bounds");
  tree->type_name("FILE");
  number("--sites", options->shape.sites, "sites", 1, 100'000)->excludes(tree);
  number("--aggregators", options->shape.aggregators, "regional aggregators; 0: none", 0, 10'000)->excludes(tree);
  number("--tiers", options->shape.tiers, "tiers of aggregators", 1, 7)->excludes(tree);
  number("--params", options->shape.params, "fp32 parameters of the model", 1, std::uint64_t{1} << 40)->excludes(tree);
  bound->add_option("--codec", options->forms.codec, "of the updates, with options: " + kernels::codec_names())
      ->capture_default_str()
      ->excludes(tree);
  bound
      ->add_option("--down", options->forms.down,
                   "how the model travels to the sites: " + std::string(aggregate::kDownForms))
      ->capture_default_str()
      ->excludes(tree);
  bound
      ->add_option("--work-dir", options->work_dir, "an empty folder on the disk to measure (default: a temporary one)")
      ->type_name("PATH");
  bound->add_flag("--json", options->json, "as JSON, in seconds and bytes");
  bound->footer(
      "Example:\n  fluvial bench tree --sites 4 --aggregators 0 --json tree.json\n  fluvial bench bound --tree "
      "tree.json");
  bound->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run_bound(commands.io, *options); }; });
}

}  // namespace fluvial::cli
