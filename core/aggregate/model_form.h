// A model in fewer bytes, as it travels down (docs/formats/model.md): the fp32 values of its tensors, or their
// difference from another model, by a codec, chunk by chunk; then its other tensors as they are. Made once, by the
// coordinator, and decoded by each receiver to the same bytes. Thread safe; blocking.
#pragma once

#include <cstdint>
#include <optional>

#include "core/aggregate/down.h"
#include "core/base/bytes.h"
#include "core/base/parallel.h"
#include "core/round/model_form.h"
#include "core/round/schema.h"

namespace fluvial::aggregate {

// kInvalidArgument: a codec that models do not travel by, or more or fewer bytes than such a model can have. To be
// called before anything is allocated for what a peer announces. kFailedPrecondition: this build lacks the codec.
Status check_form(const round::ModelForm& form, const round::Schema& schema);

// A model that is there.
struct BaseModel {
  round::ModelRef ref;
  ByteSpan bytes;
};

struct EncodedModel {
  round::ModelForm form;
  Buffer bytes;
  double left_out_norm = 0;  // 2-norm, over the averaged tensors, of what `trained` lacks of the model
};

// Encodes `model`, and writes what a receiver decodes to `trained`, which has its size. A delta needs a base; another
// one has none. kInvalidArgument: a value that the codec does not hold, or a result that is not finite; such a model
// has to travel whole. The same arguments give the same bytes, on every machine.
Result<EncodedModel> encode_model(Parallel& parallel, const Down& down, std::uint64_t chunk_values,
                                  const kernels::StreamKey& key, const round::Schema& schema, ByteSpan model,
                                  const std::optional<BaseModel>& base, MutableByteSpan trained);

// The model's bytes of what encode_model() made; `base` are the bytes of form.base, or nothing. kDataLoss for whatever
// a hostile sender could send otherwise; `out` then holds anything. That the result is the model that was announced
// only its digest says.
Status decode_model(Parallel& parallel, const round::ModelForm& form, const round::Schema& schema, ByteSpan base,
                    ByteSpan encoded, MutableByteSpan out);

}  // namespace fluvial::aggregate
