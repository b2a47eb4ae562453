// From what the workers trained to a durable submission, or into the residual: reduced, screened and encoded on the
// pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "edge/logic/site_machine.h"
#include "edge/reduce/schedule.h"
#include "edge/service/early_reduction.h"
#include "edge/service/site_context.h"
#include "edge/service/trainers.h"
#include "edge/update/encode.h"
#include "edge/update/passes.h"

namespace fluvial::edge {

class UpdateMaker {
 public:
  struct Events {
    std::function<void()> reads;  // the memory of workers, early; then read()
    std::function<void()> read;   // likewise when what was trained is an update, or in the residual
    // Some chunks more are encoded, or all of them and it is being made durable; then encoded() or encode_failed().
    // Another feed than before: encoding has begun anew.
    std::function<void(WorkId, std::shared_ptr<const Feed>)> fed;
    std::function<void(const Offer&, const Error&)> no_room;  // on the disk: what was trained is kept, and tried again
    std::function<bool(WorkId)> is_given_up;                  // nobody waits for it any more
    std::function<void(WorkId, store::PendingUpdate)> encoded;
    std::function<void(const Offer&, const Error&)> not_used;  // what was trained for it is dropped, for this reason
    std::function<void(WorkId, const Error&)> encode_failed;
    std::function<void(WorkId)> folded;  // or dropped
    std::function<void(store::PendingUpdate)> pass_encoded;
    std::function<void(const Error&)> pass_failed;
  };

  UpdateMaker(SiteContext& site, Events events);

  // As the setting `reduction` says, for this number of workers. "auto" measures, and takes the fastest here.
  void choose_reduction(std::string_view setting, std::size_t workers);
  void stop() { early_.stop(); }

  void in_place(const TrainJob& job, std::vector<TrainedPart> parts, const round::ByteRanges& ready);
  void drop_early() { early_.drop(); }
  void take(Trained trained) { trained_ = std::move(trained); }  // for the next of these
  // `codec_state`: as the round's opening named it; empty: it named none.
  void encode(const Encode& effect, SharedBytes codec_state);
  void encode_pass(const EncodePass& effect, SharedBytes mean);
  void fold(const Fold& effect);

 private:
  struct Made;  // what making an update finds besides it
  net::Awaitable<void> run(Encode effect, Trained trained, SharedBytes codec_state);
  net::Awaitable<void> run(EncodePass effect, SharedBytes mean);
  net::Awaitable<void> run(Fold effect, Trained trained);
  Trained take_trained(const Offer& offer);
  // A view of all three.
  UpdateJob job_of(const Offer& offer, const Trained& trained, PartialMean* early, Made* made) const;
  Result<std::vector<store::Unspent>> begin_run(const Offer& offer, const Trained& trained);
  net::Awaitable<Result<store::PendingUpdate>> make(const Encode& effect, const Trained& trained, ByteSpan codec_state,
                                                    PartialMean* early, Made* made);
  net::Awaitable<bool> room_comes(const Encode& effect, const Error& why);
  void results_are_read(std::shared_ptr<PartialMean> early, std::vector<TrainedPart> parts);
  void report(const Offer& offer, const Made& made);
  void note_spans(const Offer& offer, TimePoint begun, const Made& made);

  SiteContext& site_;
  Events events_;
  Algorithm reduction_ = Algorithm::kDirect;
  EarlyReduction early_;
  std::optional<Trained> trained_;
};

}  // namespace fluvial::edge
