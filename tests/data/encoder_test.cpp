// Tests of the tokenizer adapter for datasets.
#include "data/encoder.h"

#include "data/prepare.h"
#include "data/text_cut.h"
#include "data/token_dataset.h"
#include "data_testing.h"
#include "shared_data.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace encoder_test {

std::shared_ptr<const text::Tokenizer> gpt2() {
  static const auto tokenizer = text::Tokenizer::load(shared_data() / "gpt2");
  return tokenizer;
}

TEST(Encoder, OfGpt2EndsDocumentsAndTakesParts) {
  SKIP_WITHOUT_SHARED_DATA("gpt2/vocab.json");
  const Encoder encoder = make_encoder(gpt2());
  EXPECT_EQ(encoder.vocabulary_size, 50257);
  EXPECT_EQ(encoder.end, 50256);
  EXPECT_EQ(encoder.begin, std::nullopt);
  EXPECT_TRUE(encoder.pieces);
  EXPECT_EQ(make_encoder(gpt2(), false).end, std::nullopt);
}

TEST(Encoder, OfSentencePieceKindTakesWholeDocuments) {
  // A tokenizer that, like Llama 2's, marks the start of a text and prepends <s>.
  const TemporaryFolder folder;
  const auto path = write(folder, "tokenizer.json", R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"<s>": 0, "<unk>": 1, "▁": 2, "a": 3, "e": 4, "▁a": 5}, "merges": ["▁ a"]}})");
  const Encoder encoder = make_encoder(text::Tokenizer::load(path));
  EXPECT_EQ(encoder.begin, 0);
  EXPECT_FALSE(encoder.pieces);
}

TEST(Encoder, PartsOfRealTextHaveTheTokensOfTheWhole) {
  SKIP_WITHOUT_SHARED_DATA("gpt2/vocab.json");
  SKIP_WITHOUT_SHARED_DATA("shakespeare/input.txt");
  const Encoder encoder = make_encoder(gpt2());
  for (const char* name : {"shakespeare/input.txt", "wikitext2/valid.txt"}) {
    const std::string text = read_file(shared_data() / name).substr(0, 600'000);
    const std::vector<int32_t> whole = encoder.encode(text);
    for (const size_t part : {1000UL, 7919UL}) {
      std::vector<int32_t> joined;
      std::string_view rest = text;
      while (!rest.empty()) {
        const size_t cut = rest.size() > part ? find_cut(rest.substr(0, part)) : rest.size();
        const std::vector<int32_t> ids = encoder.encode(rest.substr(0, cut));
        joined.insert(joined.end(), ids.begin(), ids.end());
        rest.remove_prefix(cut);
      }
      EXPECT_EQ(joined, whole) << name;
    }
  }
}

TEST(Encoder, PreparesRealFiles) {
  SKIP_WITHOUT_SHARED_DATA("gpt2/vocab.json");
  SKIP_WITHOUT_SHARED_DATA("shakespeare/input.txt");
  const TemporaryFolder folder;
  const Encoder encoder = make_encoder(gpt2());
  DataOptions options;
  options.cache_dir = folder.path();
  options.train = {(shared_data() / "shakespeare/input.txt").string()};
  const auto whole = TokenDataset::open(prepare_data(options, encoder).train);
  EXPECT_EQ(whole->documents(), 1);
  EXPECT_EQ(whole->tokens(), 338'025 + 1);  // known token count of this text, plus the end token
  options.validation_fraction = 0.1;
  const PreparedData split = prepare_data(options, encoder);
  const int64_t held_out = TokenDataset::open(split.validation)->tokens();
  EXPECT_NEAR(static_cast<double>(held_out), 33'800, 5'000);
}

}  // namespace encoder_test
}  // namespace lockstep::data
