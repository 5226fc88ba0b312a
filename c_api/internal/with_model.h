// What a loaded model and a session have in common: a model and a tokenizer to score and generate text with.
// Thread rule: as the handle they belong to.
#pragma once

#include "c_api/internal/handles.h"
#include "core/model/model.h"
#include "core/text/tokenizer.h"

namespace invar::abi {

Outcome evaluate_with(const char* function, Model& model, const Tokenizer& tokenizer, RuntimeState& state,
                      const void* config, size_t config_size, invar_cancel* cancel,
                      const invar_progress_callback* callback, invar_bytes** report);
Outcome generate_with(const char* function, Model& model, const Tokenizer& tokenizer, const void* config,
                      size_t config_size, invar_cancel* cancel, const invar_token_callback* token,
                      invar_bytes** report);

}  // namespace invar::abi
