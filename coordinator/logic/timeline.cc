#include "coordinator/logic/timeline.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/format.h"

namespace fluvial::coordinator {
namespace {

using round::Span;
using round::SpanKind;

// Whether `later` can have waited for `earlier` on one node.
bool may_precede(const Span& earlier, const Span& later) {
  if (earlier.kind == SpanKind::kStage) return later.kind == SpanKind::kAccumulate && later.about == earlier.about;
  if (later.kind == SpanKind::kAccumulate) return earlier.kind == SpanKind::kAccumulate;
  return true;
}

class Walk {
 public:
  explicit Walk(const RoundTrace& trace) : trace_(trace), now_(trace.committed) {}

  std::vector<CriticalStep> take() {
    const Span commit{SpanKind::kPublish, {}, now_, now_};
    Span later = commit;
    while (now_ > trace_.opened) {
      const Span* before = before_of(later);
      if (node_ != NodeId(0)) before = before_elsewhere(before);
      if (before == nullptr) break;
      step(kWaiting, node_, before->ended);
      if (before_is_at_the_root_) node_ = NodeId(0);
      later = *before;
      pass(*before);
    }
    step(kWaiting, node_, trace_.opened);
    std::ranges::reverse(path_);
    return std::move(path_);
  }

 private:
  const std::vector<Span>& spans_of(NodeId node) const {
    static const std::vector<Span> kNone;
    const auto found = trace_.nodes.find(node);
    return found == trace_.nodes.end() ? kNone : found->second.spans;
  }

  // Of those that lie before now, the one that ended last.
  template <typename May>
  const Span* last_of(NodeId node, const May& may) const {
    const Span* last = nullptr;
    for (const Span& span : spans_of(node)) {
      if (span.ended > now_ || span.begun >= now_ || !may(span)) continue;
      if (last == nullptr || span.ended > last->ended || (span.ended == last->ended && span.begun > last->begun)) {
        last = &span;
      }
    }
    return last;
  }
  const Span* before_of(const Span& later) {
    before_is_at_the_root_ = false;
    return last_of(node_, [&](const Span& span) { return may_precede(span, later); });
  }
  // A node waits for the mean that opens a later pass, which the coordinator made after what the node did in the one
  // before. One that did nothing before waited for the round to be recorded.
  const Span* before_elsewhere(const Span* here) {
    const Span* there = last_of(NodeId(0), [](const Span& span) { return span.kind == SpanKind::kFinalise; });
    if (here != nullptr && (there == nullptr || there->ended < here->ended)) return here;
    before_is_at_the_root_ = true;
    if (there != nullptr) return there;
    return last_of(NodeId(0), [](const Span& span) { return span.kind == SpanKind::kFsync; });
  }

  // Through an operation, to where it began: here, or on the node that it got its bytes from.
  void pass(const Span& span) {
    if (span.kind == SpanKind::kStage && pass_to_sender(span)) return;
    const bool is_fetched = span.kind == SpanKind::kFetch || span.kind == SpanKind::kVector;
    if (is_fetched && pass_to_giver(span)) return;
    step(round::span_name(span.kind), node_, span.begun);
  }

  // From a staging to the child's sending, which is the same transfer. Without the child's spans it is all that is
  // known of it. What a site sends while it encodes cannot be through before that.
  bool pass_to_sender(const Span& stage) {
    const NodeId child = stage.about;
    if (child == node_ || !trace_.nodes.contains(child)) return false;
    const Span* sending = nullptr;
    for (const Span& span : spans_of(child)) {
      if (span.kind == SpanKind::kSend && span.begun < now_ && (sending == nullptr || span.begun > sending->begun)) {
        sending = &span;
      }
    }
    TimePoint begun = sending == nullptr ? stage.begun : sending->begun;
    for (const Span& span : spans_of(child)) {
      if (span.kind == SpanKind::kEncode && span.ended < now_) begun = std::max(begun, span.ended);
    }
    step(round::span_name(SpanKind::kSend), child, begun);
    node_ = child;
    return true;
  }

  bool pass_to_giver(const Span& fetch) {
    if (++givers_ > trace_.nodes.size()) return false;  // parents that stand in a circle
    const NodeId parent = trace_.nodes.at(node_).parent;
    const auto is_source = [&](const Span& span) { return span.kind == fetch.kind && span.ended > fetch.begun; };
    const Span* source = parent == node_ ? nullptr : last_of(parent, is_source);
    if (source == nullptr) return false;
    step(round::span_name(fetch.kind), node_, source->ended);
    node_ = parent;
    pass(*source);
    return true;
  }

  void step(std::string_view name, NodeId node, TimePoint to) {
    to = std::clamp(to, trace_.opened, now_);
    const Duration time = now_ - to;
    now_ = to;
    if (time == Duration(0)) return;
    if (!path_.empty() && path_.back().name == name && path_.back().node == node) {
      path_.back().time += time;
    } else {
      path_.push_back({name, node, time});
    }
  }

  const RoundTrace& trace_;
  TimePoint now_;
  NodeId node_;
  bool before_is_at_the_root_ = false;
  std::size_t givers_ = 0;
  std::vector<CriticalStep> path_;  // backwards
};

std::string fixed(double value, int decimals) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, decimals).ptr};
}

struct Phrase {
  std::string_view name;
  std::string_view at;   // "... at hospital-b"
  std::string_view its;  // after another step of the same node
};
constexpr Phrase kPhrases[] = {{"fetch", "fetching the model at", "model fetch"},
                               {"vector", "fetching the codec's vector at", "vector fetch"},
                               {"train", "training at", "training"},
                               {"reduce", "averaging the workers at", "averaging of workers"},
                               {"encode", "encoding at", "encoding"},
                               {"persist", "writing the update at", "writing of the update"},
                               {"send", "upload of", "upload"},
                               {"stage", "receiving at", "receiving"},
                               {"accumulate", "adding at", "adding"},
                               {"finalise", "finalising at", "finalising"},
                               {"fsync", "syncing the disk at", "syncing of the disk"},
                               {"publish", "publishing at", "publishing"},
                               {kWaiting, "waiting at", "waiting"}};

std::string phrase_of(const CriticalStep& step, bool same_node, const std::string& node) {
  const auto* phrase = std::ranges::find(kPhrases, step.name, &Phrase::name);
  if (same_node) return "its " + std::string(phrase->its);
  return std::string(phrase->at) + " " + node;
}

}  // namespace

std::vector<CriticalStep> critical_path(const RoundTrace& trace) { return Walk(trace).take(); }

std::string time_text(Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds < 0.9995) return fixed(seconds * 1e3, 0) + " ms";
  if (seconds < 9.95) return fixed(seconds, 1) + " s";
  if (seconds < 119.5) return fixed(seconds, 0) + " s";
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  return format_text("{} min {} s", whole / 60, whole % 60);
}

std::string words_of(const RoundTrace& trace, const std::vector<CriticalStep>& path,
                     const std::function<std::string(NodeId)>& name_of) {
  const Duration whole = trace.committed - trace.opened;
  std::string text = "round " + std::to_string(trace.round.value()) + " took " + time_text(whole);
  Duration rest{};
  std::size_t rest_count = 0;
  std::vector<CriticalStep> told;
  for (const CriticalStep& step : path) {
    if (step.time < whole / 100) {
      rest += step.time;
      ++rest_count;
    } else if (!told.empty() && told.back().name == step.name && told.back().node == step.node) {
      told.back().time += step.time;  // nothing that is told lies between
    } else {
      told.push_back(step);
    }
  }
  std::optional<NodeId> last;
  for (const CriticalStep& step : told) {
    text += last ? ", " : ": ";
    text += time_text(step.time) + " " + phrase_of(step, last == step.node, name_of(step.node));
    last = step.node;
  }
  if (rest_count > 0) {
    text += last ? ", " : ": ";
    text += time_text(rest) + " in " + std::to_string(rest_count) + (rest_count == 1 ? " short step" : " short steps");
  }
  return text;
}

}  // namespace fluvial::coordinator
