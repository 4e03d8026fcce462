// Allowed values of string fields of the configuration.
#pragma once

#include <string_view>

namespace lockstep::config::choices {

inline constexpr std::string_view kDataFormats[] = {"auto", "text", "jsonl", "csv", "tsv"};
inline constexpr std::string_view kTextDocuments[] = {"file", "line", "paragraph"};
inline constexpr std::string_view kPackings[] = {
    "auto", "documents", "concatenate", "none", "true", "false"};
inline constexpr std::string_view kLongDocuments[] = {"auto", "split", "truncate"};
inline constexpr std::string_view kInvalidUtf8[] = {"error", "replace"};
inline constexpr std::string_view kTasks[] = {
    "language_modeling",
    "masked_lm",
    "sequence_classification",
    "generative_classification",
    "preference",
    "reward_model",
    "unlearning"};
inline constexpr std::string_view kProblems[] = {
    "single_label_classification", "multi_label_classification", "regression"};
inline constexpr std::string_view kNormalizations[] = {"none", "token", "byte", "prior"};
inline constexpr std::string_view kDecodings[] = {"likelihood", "greedy", "first_token"};
inline constexpr std::string_view kCalibrations[] = {"none", "temperature"};
inline constexpr std::string_view kThresholds[] = {"fixed", "tuned"};
inline constexpr std::string_view kPrompts[] = {"auto", "none", "alpaca", "pairs", "chat"};
inline constexpr std::string_view kChatLosses[] = {"assistant", "last", "all"};
inline constexpr std::string_view kRampShapes[] = {"linear", "cosine", "1-sqrt"};
inline constexpr std::string_view kPlateauModes[] = {"min", "max"};
inline constexpr std::string_view kThresholdModes[] = {"rel", "abs"};
inline constexpr std::string_view kOptimizers[] = {
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "paged_lion_32bit",
    "lion_32bit",
    "sgd",
    "adafactor",
    "adam_mini",
    "muon",
    "schedule_free_adamw",
    "ademamix"};
inline constexpr std::string_view kMuonAdjustments[] = {"original", "match_rms_adamw"};
inline constexpr std::string_view kSchedules[] = {
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "reduce_lr_on_plateau",
    "greedy"};
inline constexpr std::string_view kStrategies[] = {"no", "steps", "epoch"};
inline constexpr std::string_view kLogLevels[] = {
    "debug", "info", "warning", "error", "critical", "passive"};
inline constexpr std::string_view kSaveStrategies[] = {"no", "steps", "epoch", "best"};
inline constexpr std::string_view kSamplingStrategies[] = {
    "random", "sequential", "group_by_length"};
inline constexpr std::string_view kBackends[] = {"", "nccl", "gloo"};
inline constexpr std::string_view kOffloadDevices[] = {"none", "cpu", "nvme"};
inline constexpr std::string_view kContextAttentions[] = {"ring", "ulysses"};
inline constexpr std::string_view kRecomputes[] = {"none", "selective", "full"};
inline constexpr std::string_view kCudaGraphs[] = {"off", "auto"};
inline constexpr std::string_view kReduceTypes[] = {"auto", "float32", "bfloat16", "float16"};
inline constexpr std::string_view kFloat8Scalings[] = {
    "none", "row", "tensor", "rowwise", "tensorwise"};
inline constexpr std::string_view kOnSignal[] = {"save", "save_and_stop", "ignore"};
inline constexpr std::string_view kProgressForms[] = {
    "auto", "rich", "bar", "plain", "json", "none", "line"};

inline constexpr std::string_view kQuantizationTypes[] = {"nf4", "fp4"};
inline constexpr std::string_view kTypes[] = {"float32", "bfloat16", "float16"};
inline constexpr std::string_view kRouterAuxLosses[] = {"", "none", "sequence", "micro_batch"};
inline constexpr std::string_view kLoraBiases[] = {"none", "all", "lora_only"};
inline constexpr std::string_view kLoraInitial[] = {
    "true", "false", "gaussian", "orthogonal", "pissa", "olora"};

inline constexpr std::string_view kPreferenceObjectives[] = {
    "dpo", "ipo", "kto", "simpo", "cpo", "orpo"};
inline constexpr std::string_view kPreferenceLosses[] = {
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
    "simpo",
    "kto",
    "apo_zero_unpaired"};
inline constexpr std::string_view kUnlearningMethods[] = {
    "GradAscent",
    "GradDiff",
    "NPO",
    "SimNPO",
    "DPO",
    "UNDIAL",
    "CEU",
    "WGA",
    "SatImp",
    "RMU",
    "PDU",
    "Finetune"};
inline constexpr std::string_view kUnlearningMetrics[] = {
    "forget_truth_ratio",
    "forget_quality",
    "forget_Q_A_Prob",
    "forget_Q_A_ROUGE",
    "model_utility",
    "privleak",
    "extraction_strength",
    "exact_memorization",
    "mia_loss",
    "mia_min_k",
    "mia_min_k_plus_plus",
    "mia_zlib",
    "mia_reference",
    "mia_gradnorm",
    "forget_knowmem_ROUGE",
    "retain_knowmem_ROUGE",
    "forget_verbmem_ROUGE"};
inline constexpr std::string_view kUnlearningBenchmarks[] = {"tofu", "muse"};
inline constexpr std::string_view kUnlearningAnchors[] = {"forget", "retain"};
inline constexpr std::string_view kDualUpdates[] = {"step", "epoch"};
inline constexpr std::string_view kRetainLosses[] = {"NLL", "KL", "EMBED_DIFF"};
inline constexpr std::string_view kUnlearningArithmetic[] = {"fixed", "upstream"};
inline constexpr std::string_view kTruncationModes[] = {"keep_start", "keep_end"};

}  // namespace lockstep::config::choices
