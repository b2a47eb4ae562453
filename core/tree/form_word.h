// The form in which a model travels, as metrics have it. Inside core/tree only.
#pragma once

#include <optional>

#include "core/round/model_form.h"

namespace fluvial::tree {

inline const char* form_word(const std::optional<round::ModelForm>& form) {
  if (!form) return "whole";
  return form->base ? "difference" : "rounded";
}

}  // namespace fluvial::tree
