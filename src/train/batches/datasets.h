// Datasets of a run: rank 0 writes the token files, all ranks open them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "data/options.h"
#include "data/sequences.h"
#include "model/model_config.h"
#include "text/tokenizer.h"

namespace lockstep::train {

struct Datasets {
  std::shared_ptr<const data::SequenceView> train, validation, test;  // null if not configured
  std::shared_ptr<const data::SequenceView> validation_mm = nullptr, test_mm = nullptr;
};

/// Converts the `data` section to the options of the data module. data.prompt=auto becomes kNone;
/// see row_choice.h.
data::DataOptions data_options(const config::DataSection& section);

/// Returns the sources of data.mixture with a nonzero weight.
std::vector<config::MixtureSource> sources_of(const config::DataSection& section);

/// Combines the rows of the sources into one view. `views` has one view per source, in the same
/// order. Without sources, returns the only view.
std::shared_ptr<const data::SequenceView> mixed_rows(
    const std::vector<config::MixtureSource>& sources,
    const std::vector<std::shared_ptr<const data::SequenceView>>& views);

/// Logs each mixture source's share of the samples and how often it is read in one epoch.
void tell_mixture(const Datasets& sets, const config::DataSection& section);

/// Returns the name of a data.mixture source for error messages.
std::string source_key(const config::MixtureSource& source);

/// Returns the number of tokens per row: data.sequence_length if set, otherwise the model's limit,
/// but at most 1,024. Throws Error (kConfig) if the model has fewer positions.
int64_t sequence_length_of(const config::Config& config, const model::ModelConfig& model);

/// Logs a warning if rows of `length` tokens use positions beyond max_position_embeddings.
void warn_of_positions(const model::ModelConfig& model, int64_t length);

/// Returns the chat template: data.chat_template if set, otherwise the tokenizer's. Throws Error
/// (kConfig) if there is none.
std::shared_ptr<const data::ChatTemplate> find_chat_template(
    const config::DataSection& section, const text::Tokenizer& tokenizer);
/// Returns the chat template if data.prompt=chat; null otherwise.
std::shared_ptr<const data::ChatTemplate> chat_template_of(
    const config::DataSection& section, const text::Tokenizer& tokenizer);
/// Returns the token that ends an assistant message if the model is trained on chats (data.prompt
/// or generative.chat), and the template ends messages with a special token.
std::optional<int64_t> end_of_turns(const config::Config& config, const text::Tokenizer& tokenizer);

/// Returns how documents are packed into rows for `model`, according to data.packing. Throws Error
/// (kConfig) if the model does not support several documents per row.
data::Packing packing_of(const config::DataSection& section, const model::ModelConfig& model);

/// Returns true if several rows are packed into one row of a micro-batch, with attention restricted
/// to each. This applies to rows of a classifier and to answers, which are scored independently. It
/// is the default if data.packing is not set and the model supports it. Throws Error (kConfig) if
/// packing is requested but not supported.
bool packs_rows(const config::Config& config, const model::ModelConfig& model);

/// Logs the share of padding in the first `draws` micro-batches of packed rows.
void tell_packed_rows(const Datasets& sets, int64_t draws);

/// Returns the default packing of prompts with answers: several per row if the model supports it.
data::Packing packing_of_prompts(const model::ModelConfig& model);

/// Throws Error (kConfig) if task.type is language_modeling for a masked language model, or
/// masked_lm for a causal one.
void check_task(const config::TaskSection& task, const model::ModelConfig& model);

/// Throws Error (kConfig) if `model` cannot be trained on documents of the kind that `options`
/// describe.
void check_documents(const model::ModelConfig& model, const data::DataOptions& options);

/// Returns the token masking of an encoder, from the `data` section and the data seed. Empty for
/// other models. Throws Error (kConfig) if the tokenizer has no mask token.
std::optional<data::Masking> masking_of(
    const config::Config& config,
    const model::ModelConfig& model,
    const text::Tokenizer& tokenizer);

/// Opens the datasets as rows for `model`. Rank 0 tokenizes the files while the other ranks wait.
/// For encoder-decoder models, the rows are pairs; throws Error (kConfig) if the data is plain
/// text. With data.mixture, the training set combines the rows of all sources, and held-out splits
/// are taken from each source. Must be called on every rank.
Datasets open_datasets(
    const config::DataSection& section,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::optional<data::Masking>& masking = std::nullopt);

}  // namespace lockstep::train
