#include "core/round/span.h"

#include <algorithm>
#include <utility>

namespace fluvial::round {

std::string_view span_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::kFetch: return "fetch";
    case SpanKind::kTrain: return "train";
    case SpanKind::kReduce: return "reduce";
    case SpanKind::kEncode: return "encode";
    case SpanKind::kPersist: return "persist";
    case SpanKind::kSend: return "send";
    case SpanKind::kStage: return "stage";
    case SpanKind::kAccumulate: return "accumulate";
    case SpanKind::kFinalise: return "finalise";
    case SpanKind::kFsync: return "fsync";
    case SpanKind::kPublish: return "publish";
    case SpanKind::kVector: return "vector";
  }
  return "unknown";
}

std::optional<SpanKind> span_kind_from_number(std::uint64_t number) {
  for (const SpanKind kind : kSpanKinds) {
    if (static_cast<std::uint64_t>(kind) == number) return kind;
  }
  return std::nullopt;
}

SpanLog::Slot& SpanLog::slot_of(RunId run, RoundId round) {
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.run == run && slot.round == round; });
  if (found != slots_.end()) return *found;
  if (slots_.size() < kTracedRounds) {
    slots_.emplace_back();
    slots_.back().run = run;
    slots_.back().round = round;
    return slots_.back();
  }
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kTracedRounds;
  slot.run = run;
  slot.round = round;
  slot.taken = false;
  slot.oldest = 0;
  slot.spans.clear();
  return slot;
}

void SpanLog::add(RunId run, RoundId round, const Span& span) {
  Slot& slot = slot_of(run, round);
  if (std::exchange(slot.taken, false)) {  // what it had is told
    slot.spans.clear();
    slot.oldest = 0;
  }
  if (slot.spans.size() < kSpansInRoundMax) {
    slot.spans.push_back(span);
    return;
  }
  slot.spans[slot.oldest] = span;
  slot.oldest = (slot.oldest + 1) % kSpansInRoundMax;
}

RoundSpans SpanLog::read(const Slot& slot) {
  RoundSpans out{slot.run, slot.round, {}};
  out.spans.reserve(slot.spans.size());
  for (std::size_t i = 0; i < slot.spans.size(); ++i) {
    out.spans.push_back(slot.spans[(slot.oldest + i) % slot.spans.size()]);
  }
  return out;
}

RoundSpans SpanLog::of(RunId run, RoundId round) const {
  for (const Slot& slot : slots_) {
    if (slot.run == run && slot.round == round) return read(slot);
  }
  return {run, round, {}};
}

std::vector<SpanLog::Open>::iterator SpanLog::find(RunId run, RoundId round, SpanKind kind, NodeId about) {
  return std::ranges::find_if(open_, [&](const Open& open) {
    return open.run == run && open.round == round && open.span.kind == kind && open.span.about == about;
  });
}

void SpanLog::begun(RunId run, RoundId round, SpanKind kind, TimePoint now, NodeId about) {
  if (find(run, round, kind, about) != open_.end()) return;
  if (open_.size() == kSpansInRoundMax) open_.erase(open_.begin());
  open_.push_back({run, round, {kind, about, now, now}});
}

void SpanLog::ended(RunId run, RoundId round, SpanKind kind, TimePoint now, NodeId about) {
  const auto found = find(run, round, kind, about);
  if (found == open_.end()) return;
  found->span.ended = now;
  add(run, round, found->span);
  open_.erase(found);
}

std::vector<RoundSpans> SpanLog::take_until(RunId run, RoundId round, TimePoint now) {
  const auto is_over = [&](const auto& one) { return one.run == run && one.round <= round; };
  for (Open& open : open_) {
    if (!is_over(open)) continue;
    open.span.ended = now;
    add(open.run, open.round, open.span);
  }
  std::erase_if(open_, is_over);
  std::vector<RoundSpans> out;
  for (Slot& slot : slots_) {
    if (!is_over(slot) || std::exchange(slot.taken, true)) continue;
    out.push_back(read(slot));
  }
  std::ranges::sort(out, {}, &RoundSpans::round);
  return out;
}

}  // namespace fluvial::round
