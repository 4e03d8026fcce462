// The token files of a run: made by rank 0, opened by all.
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
  std::shared_ptr<const data::SequenceView> train, validation, test;  // null where not named
  std::shared_ptr<const data::SequenceView> validation_mm = nullptr, test_mm = nullptr;
};

/// The section `data` as the data module's options.
data::DataOptions data_options(const config::DataSection& section);

/// The sources of data.mixture that take part: those whose weight is not 0.
std::vector<config::MixtureSource> sources_of(const config::DataSection& section);

/// The rows of these sources, a view each in their order, as one; of none: of the only view.
std::shared_ptr<const data::SequenceView> mixed_rows(
    const std::vector<config::MixtureSource>& sources,
    const std::vector<std::shared_ptr<const data::SequenceView>>& views);

/// Logs what is drawn of each source of a mixture, and how often an epoch reads it.
void tell_mixture(const Datasets& sets, const config::DataSection& section);

/// What errors call a source of data.mixture.
std::string source_key(const config::MixtureSource& source);

/// Tokens of a row: data.sequence_length, else what the model allows, at most 1,024. Error
/// (kConfig) where the model has not as many positions.
int64_t sequence_length_of(const config::Config& config, const model::ModelConfig& model);

/// What writes messages: data.chat_template's, or the tokenizer's own template. Error (kConfig)
/// where there is none.
std::shared_ptr<const data::ChatTemplate> find_chat_template(
    const config::DataSection& section, const text::Tokenizer& tokenizer);
/// It with data.prompt=chat; null with other prompts.
std::shared_ptr<const data::ChatTemplate> chat_template_of(
    const config::DataSection& section, const text::Tokenizer& tokenizer);

/// How documents become rows for `model`, by data.packing. Error (kConfig) where it cannot read
/// several of them in one.
data::Packing packing_of(const config::DataSection& section, const model::ModelConfig& model);

/// Whether a micro-batch puts several rows that are judged one by one (a classifier's, answers) in
/// one, none of which sees another: where data.packing does not say, where the model can read them
/// so. Error (kConfig): it cannot, and is asked to.
bool packs_rows(const config::Config& config, const model::ModelConfig& model);

/// Logs what of the micro-batches of packed rows, of so many draws, is padding.
void tell_packed_rows(const Datasets& sets, int64_t draws);

/// How prompts and their answers become rows, where data.packing does not say: several in one where
/// the model can read them so.
data::Packing packing_of_prompts(const model::ModelConfig& model);

/// Error (kConfig) where task.type is language_modeling or masked_lm and the model is for the
/// other.
void check_task(const config::TaskSection& task, const model::ModelConfig& model);

/// Error (kConfig) where `model` cannot be trained on such documents.
void check_documents(const model::ModelConfig& model, const data::DataOptions& options);

/// What hides tokens of an encoder's rows, by the section `data` and the seed of the training's
/// data; nothing for another model. Error (kConfig): the tokenizer has no mask's token.
std::optional<data::Masking> masking_of(
    const config::Config& config,
    const model::ModelConfig& model,
    const text::Tokenizer& tokenizer);

/// Tokenizes once (rank 0, the others wait), then opens the token files as rows for `model`: an
/// encoder-decoder gets pairs, and Error (kConfig) where the section names texts alone. Of
/// data.mixture, train is the rows of its sources, and what is held out is held out of each. Every
/// rank must call.
Datasets open_datasets(
    const config::DataSection& section,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::optional<data::Masking>& masking = std::nullopt);

}  // namespace lockstep::train
