// What every process counts of itself: sessions, disk, the parent, what crosses its edges.
#include "core/base/result.h"
#include "core/telemetry/subjects.h"

namespace fluvial::telemetry {
namespace {

std::vector<LabelValue> handshake_refusals() {
  return {"plain_http",          "not_tls",          "old_tls",        "no_certificate", "bad_certificate",
          "wrong_alpn",          "handshake_failed", "handshake_slow", "closed_early",   "too_many_sessions",
          "too_many_handshakes", "gave_way"};
}

std::vector<LabelValue> frame_refusals() {
  return {"damaged",    "not_a_frame", "oversize_header", "oversize_payload",
          "bad_header", "slow",        "key_updates",     "before_admission"};
}

std::vector<LabelValue> joined(std::vector<LabelValue> a, const std::vector<LabelValue>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Label what_label() {
  return {"what",
          {{"journal", kCoordinators}, {"models", kCoordinators}, {"spill", kParents}, {"state", kSites}, "other"}};
}

// Of kernels/codecs/registry.cc; core/tree's tests hold the two together.
constexpr std::string_view kCodecs[] = {"fp32",  "fp16", "bf16", "int8",     "int4",     "sign", "topk",
                                        "randk", "dgc",  "qsgd", "terngrad", "powersgd", "ring", "onebit_adam"};

Label form_label() { return {"form", {"whole", "rounded", "difference"}}; }

Label codec_label() {
  Label label{"codec", {{"partial", kParents}}};
  label.values.insert(label.values.begin(), std::begin(kCodecs), std::end(kCodecs));
  return label;
}

}  // namespace

Label tier_label() { return {"tier", {{"parent", kChildren}, {"children", kParents}}}; }

Label error_label(std::string_view name) {
  Label label{name, {}};
  for (int code = static_cast<int>(Code::kInvalidArgument); code <= static_cast<int>(Code::kConflict); ++code) {
    label.values.emplace_back(code_name(static_cast<Code>(code)));
  }
  return label;
}

Subject process_subject() {
  using enum Kind;
  return {"Every process",
          "These have no prefix. How long a process is up: `time() - process_start_time_seconds`.",
          false,
          {
              {"fluvial_build_info",
               kGauge,
               kEveryRole,
               "1, with the version and the role as labels",
               {{"version", {}},
                {"role", {{"coordinator", kCoordinators}, {"aggregator", kAggregators}, {"site", kSites}}}}},
              {"process_start_time_seconds", kGauge, kEveryRole, "Start of the process, since 1970"},
              {"process_resident_memory_bytes", kGauge, kEveryRole, "Resident memory"},
              {"process_open_fds", kGauge, kEveryRole, "Open file descriptors"},
              {"process_cpu_seconds_total", kCounter, kEveryRole, "User and system CPU time"},
          }};
}

Subject sessions_subject() {
  using enum Kind;
  Label results{"result", joined({"ok"}, handshake_refusals())};
  Label refusals{"reason", joined(joined(handshake_refusals(), frame_refusals()),
                                  {"not_admitted", "silent", "stuck", "too_many_of_member", "certificate_ended"})};
  return {"Sessions and the process",
          "Bytes and frames are counted while a session runs, at most 5 s late.",
          true,
          {
              {"sessions_open", kGauge, kEveryRole, "Sessions now"},
              {"sessions_accepted_total", kCounter, kEveryRole,
               "Sessions whose handshake was completed, whoever connected"},
              {"handshakes_total",
               kCounter,
               kEveryRole,
               "Handshakes by result: `ok` of both directions, the others of connections that came in",
               {results}},
              {"sessions_refused_total", kCounter, kEveryRole, "Connections refused or cut", {refusals}},
              {"frames_refused_total",
               kCounter,
               kEveryRole,
               "Frames that broke the format or a bound",
               {{"reason", frame_refusals()}}},
              {"frames_received_total", kCounter, kEveryRole, "Frames received", {tier_label()}},
              {"frames_sent_total", kCounter, kEveryRole, "Frames sent", {tier_label()}},
              {"received_bytes_total", kCounter, kEveryRole, "Bytes received, with TLS", {tier_label()}},
              {"sent_bytes_total", kCounter, kEveryRole, "Bytes sent, with TLS", {tier_label()}},
              {"outbox_bytes", kGauge, kEveryRole, "Bytes waiting to be sent", {tier_label()}},
              {"heartbeat_timeouts_total", kCounter, kEveryRole, "Sessions ended because the peer was silent"},
              {"certificate_expiry_timestamp_seconds", kGauge, kEveryRole,
               "End of this process' own certificate, since 1970"},
              {"io_threads", kGauge, kEveryRole, "Threads that serve sessions"},
              {"pool_threads", kGauge, kEveryRole, "Threads for arithmetic, hashing and the disk"},
              {"pool_tasks", kGauge, kEveryRole, "Work queued or running on these threads"},
              {"strand_lag_seconds", kGauge, kEveryRole,
               "How long the node's strand, on which its state machine lives, took to answer this scrape"},
          }};
}

Subject disk_subject() {
  using enum Kind;
  return {"The disk",
          "",
          true,
          {
              {"disk_write_seconds", kHistogram, kEveryRole, "One write to a file", {what_label()}},
              {"disk_fsync_seconds", kHistogram, kEveryRole, "One fsync of a file or folder", {what_label()}},
              {"disk_written_bytes_total", kCounter, kEveryRole, "Bytes written to files", {what_label()}},
          }};
}

Subject parent_subject() {
  using enum Kind;
  Label results = error_label("result");
  results.values.insert(results.values.begin(), "ok");
  return {"The parent: aggregators and sites",
          "",
          true,
          {
              {"connected", kGauge, kChildren, "1 while a session to a parent is up"},
              {"parent_connects_total",
               kCounter,
               kChildren,
               "Attempts to get a parent (a lease, then a session), by result: ok, or an error code",
               {results}},
              {"reconnects_total", kCounter, kChildren, "Those of them that were not the first"},
              {"certificate_renewals_total",
               kCounter,
               kChildren,
               "Attempts to renew this process' own certificate",
               {{"result", {"ok", "failed"}}}},
              {"parents_distrusted_total", kCounter, kChildren,
               "Sessions ended because the parent said what the coordinator had not signed"},
          }};
}

Subject bytes_subject() {
  using enum Kind;
  return {"Models and updates by tier",
          "Bytes of tensors, without what frames add. What compression saves: `update_fp32_bytes_total / "
          "update_bytes_total`.\n"
          "A partial is the sum of many updates in integers, and counts as one update in fp32. Of a round with several "
          "passes the bytes of each count, and as fp32 the last one's alone, as an update of the model. "
          "The vectors that such a round sends down, means and the codec's state, count as models here.",
          true,
          {
              {"update_bytes_total",
               kCounter,
               kEveryRole,
               "Encoded bytes of updates and partials: received whole from children, sent whole to the parent",
               {tier_label(), codec_label()}},
              {"update_fp32_bytes_total",
               kCounter,
               kEveryRole,
               "The same updates and partials, at 4 bytes a value",
               {tier_label(), codec_label()}},
              {"model_bytes_total",
               kCounter,
               kEveryRole,
               "Bytes of models: received from the parent, sent to children",
               {tier_label()}},
              {"models_sent_total",
               kCounter,
               kParents,
               "Transfers of a model that began or went on, by the form in which it travels ([down](plan.md#down))",
               {form_label()}},
              {"models_received_total",
               kCounter,
               kChildren,
               "Models that came and had the digest that was announced, by the form in which they came",
               {form_label()}},
              {"models_ahead_total",
               kCounter,
               kChildren,
               "Models that were fetched before their commit "
               "([ahead](../design/architecture.md#a-model-comes-ahead-of-its-name)): "
               "`used`, or `dropped` since another was committed, or none",
               {{"outcome", {"used", "dropped"}}}},
              {"models_refused_total", kCounter, kChildren,
               "Models that came damaged, were not what was announced, or found no room; they are asked for again"},
          }};
}

}  // namespace fluvial::telemetry
