#include "tools/config/accelerate_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace ddprun::launcher {
namespace {

using Field = AccelerateField;

constexpr Field kFsdp[] = {
    {"fsdp_version", "FSDP_VERSION", "1"},
    {"fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
    {"fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", "true", Field::kLower},
    {"fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", "false", Field::kLower},
    {"fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", "100000000"},
    {"fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", nullptr},
    {"fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", nullptr},
    {"fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", nullptr},
    {"fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", nullptr},
    {"fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", "false", Field::kLower},
    {"fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", "true", Field::kLower},
    {"fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", "true", Field::kLower},
    {"fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", "true", Field::kLower},
    {"fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", "false", Field::kLower},
    {"fsdp_activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "false",
     Field::kLower},
    {"fsdp_ignored_modules", "FSDP_IGNORED_MODULES", nullptr},
};

constexpr Field kDeepSpeed[] = {
    {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", nullptr},
    {"gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", nullptr},
    {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", nullptr, Field::kLower},
    {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", nullptr,
     Field::kLower},
    {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", nullptr, Field::kLower},
    {"zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT", nullptr, Field::kLower},
    {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", nullptr,
     Field::kLower},
    {"deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE", nullptr},
    {"deepspeed_moe_layer_cls_names", "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", nullptr},
    {"offload_optimizer_nvme_path", nullptr, nullptr},
    {"offload_param_nvme_path", nullptr, nullptr},
    {"deepspeed_multinode_launcher", nullptr, nullptr},
    {"deepspeed_hostfile", nullptr, nullptr},
    {"deepspeed_inclusion_filter", nullptr, nullptr},
    {"deepspeed_exclusion_filter", nullptr, nullptr},
};

constexpr Field kDynamo[] = {
    {"dynamo_backend", "ACCELERATE_DYNAMO_BACKEND", "NO", Field::kUpper},
    {"dynamo_mode", "ACCELERATE_DYNAMO_MODE", "default"},
    {"dynamo_use_fullgraph", "ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"},
    {"dynamo_use_dynamic", "ACCELERATE_DYNAMO_USE_DYNAMIC", "False"},
    {"dynamo_use_regional_compilation", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False"},
};

// fp8_override_linear_precision is a list, and three variables.
constexpr Field kFp8[] = {
    {"fp8_backend", "ACCELERATE_FP8_BACKEND", nullptr},
    {"fp8_use_autocast_during_eval", "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "False"},
    {"fp8_margin", "ACCELERATE_FP8_MARGIN", "0"},
    {"fp8_interval", "ACCELERATE_FP8_INTERVAL", "1"},
    {"fp8_format", "ACCELERATE_FP8_FORMAT", "HYBRID"},
    {"fp8_amax_history_len", "ACCELERATE_FP8_AMAX_HISTORY_LEN", "1024"},
    {"fp8_amax_compute_algo", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", "most_recent"},
    {"fp8_opt_level", "ACCELERATE_FP8_OPT_LEVEL", "O2"},
    {"fp8_enable_fsdp_float8_all_gather", "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "1"},
    {"fp8_pad_inner_dim", "ACCELERATE_FP8_PAD_INNER_DIM", "1"},
    {"fp8_override_linear_precision", nullptr, nullptr},
};

constexpr Field kMegatron[] = {
    {"megatron_lm_tp_degree", "MEGATRON_LM_TP_DEGREE", "1"},
    {"megatron_lm_use_custom_fsdp", "MEGATRON_LM_USE_CUSTOM_FSDP", "False"},
    {"megatron_lm_no_load_optim", "MEGATRON_LM_NO_LOAD_OPTIM", "False"},
    {"megatron_lm_eod_mask_loss", "MEGATRON_LM_EOD_MASK_LOSS", "False"},
    {"megatron_lm_overlap_cpu_optimizer_d2h_h2d", "MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D",
     "False"},
    {"megatron_lm_no_save_optim", "MEGATRON_LM_NO_SAVE_OPTIM", "False"},
    {"megatron_lm_optimizer_cpu_offload", "MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD", "False"},
    {"megatron_lm_use_precision_aware_optimizer", "MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER",
     "False"},
    {"megatron_lm_decoder_last_pipeline_num_layers", "MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS",
     nullptr},
    {"megatron_lm_pp_degree", "MEGATRON_LM_PP_DEGREE", "1"},
    {"megatron_lm_num_micro_batches", "MEGATRON_LM_NUM_MICRO_BATCHES", nullptr},
    {"megatron_lm_sequence_parallelism", "MEGATRON_LM_SEQUENCE_PARALLELISM", nullptr},
    {"megatron_lm_recompute_activations", "MEGATRON_LM_RECOMPUTE_ACTIVATIONS", nullptr},
    {"megatron_lm_use_distributed_optimizer", "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", nullptr},
    {"megatron_lm_gradient_clipping", "MEGATRON_LM_GRADIENT_CLIPPING", "1.0"},
    {"megatron_lm_recompute_granularity", "MEGATRON_LM_RECOMPUTE_GRANULARITY", nullptr},
    {"megatron_lm_recompute_method", "MEGATRON_LM_RECOMPUTE_METHOD", nullptr},
    {"megatron_lm_recompute_num_layers", "MEGATRON_LM_RECOMPUTE_NUM_LAYERS", nullptr},
    {"megatron_lm_attention_backend", "MEGATRON_LM_ATTENTION_BACKEND", nullptr},
    {"megatron_lm_expert_model_parallel_size", "MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE", nullptr},
    {"megatron_lm_context_parallel_size", "MEGATRON_LM_CONTEXT_PARALLEL_SIZE", nullptr},
    {"megatron_lm_attention_dropout", "MEGATRON_LM_ATTENTION_DROPOUT", nullptr},
    {"megatron_lm_hidden_dropout", "MEGATRON_LM_HIDDEN_DROPOUT", nullptr},
    {"megatron_lm_attention_softmax_in_fp32", "MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32", nullptr},
    {"megatron_lm_expert_tensor_parallel_size", "MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE", nullptr},
    {"megatron_lm_calculate_per_token_loss", "MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS", nullptr},
    {"megatron_lm_use_rotary_position_embeddings", "MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS",
     nullptr},
};

constexpr Field kParallelism[] = {
    {"parallelism_config_dp_replicate_size", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "1"},
    {"parallelism_config_dp_shard_size", "PARALLELISM_CONFIG_DP_SHARD_SIZE", "1"},
    {"parallelism_config_tp_size", "PARALLELISM_CONFIG_TP_SIZE", "1"},
    {"parallelism_config_cp_size", "PARALLELISM_CONFIG_CP_SIZE", "1"},
    {"parallelism_config_cp_backend", "PARALLELISM_CONFIG_CP_BACKEND", "torch"},
    {"parallelism_config_sp_size", "PARALLELISM_CONFIG_SP_SIZE", "1"},
    {"parallelism_config_sp_backend", "PARALLELISM_CONFIG_SP_BACKEND", "deepspeed"},
};

constexpr Field kContextParallel[] = {
    {"parallelism_config_cp_comm_strategy", "PARALLELISM_CONFIG_CP_COMM_STRATEGY", "allgather"},
};

constexpr Field kSequenceParallel[] = {
    {"parallelism_config_sp_seq_length", "PARALLELISM_CONFIG_SP_SEQ_LENGTH", "None"},
    {"parallelism_config_sp_seq_length_is_variable", "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE",
     "True"},
    {"parallelism_config_sp_attn_implementation", "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION",
     "sdpa"},
};

constexpr AccelerateSection kSections[] = {
    {"fp8_config", "fp8"},        {"deepspeed_config", ""},   {"fsdp_config", "fsdp"},
    {"parallelism_config", ""},   {"megatron_lm_config", ""}, {"mpirun_config", ""},
    {"dynamo_config", "dynamo_"}, {"ipex_config", "ipex"},  // of older releases
};

// The plain words of YAML 1.1 that are no texts.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"true", "True"}, {"yes", "True"},  {"on", "True"}, {"false", "False"}, {"no", "False"},
    {"off", "False"}, {"null", "None"}, {"~", "None"},  {"", "None"},
};

// Python's spelling of one of these words, which may also be written as True or TRUE; nullptr =
// another text.
const char* PythonWord(absl::string_view text) {
  for (const auto& [word, python] : kWords) {
    std::string title(word);
    if (!title.empty()) title[0] = absl::ascii_toupper(static_cast<unsigned char>(title[0]));
    if (text == word || text == title || text == absl::AsciiStrToUpper(word)) return python;
  }
  return nullptr;
}

size_t DigitsAt(absl::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() &&
         (absl::ascii_isdigit(static_cast<unsigned char>(text[end])) || text[end] == '_')) {
    ++end;
  }
  return end - at;
}

// A number as YAML 1.1 has it: a float needs a point, and its exponent a sign ("1e-5" is a text).
enum class Number { kNone, kWhole, kFloat };
Number NumberOf(absl::string_view text) {
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const size_t whole = DigitsAt(text, at);
  if (whole > 0 && text[at] == '_') return Number::kNone;
  at += whole;
  // A leading zero makes it octal.
  if (at == text.size()) {
    const bool plain = whole == 1 || (whole > 1 && text[at - whole] != '0');
    return plain ? Number::kWhole : Number::kNone;
  }
  if (text[at] != '.') return Number::kNone;
  const size_t fraction = DigitsAt(text, at + 1);
  if (whole + fraction == 0) return Number::kNone;
  at += 1 + fraction;
  if (at == text.size()) return Number::kFloat;
  if (text[at] != 'e' && text[at] != 'E') return Number::kNone;
  if (at + 1 >= text.size() || (text[at + 1] != '-' && text[at + 1] != '+')) return Number::kNone;
  const size_t exponent = DigitsAt(text, at + 2);
  return exponent > 0 && at + 2 + exponent == text.size() ? Number::kFloat : Number::kNone;
}

// repr() of a float: the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
// (std::to_chars() would be 100 kB of the program.)
std::string FloatText(double value) {
  const double size = std::abs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  std::string text;
  int digits = 0;  // behind the first one
  for (double read = 0; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    text = absl::StrFormat("%.*e", digits, value);
    if (absl::SimpleAtod(text, &read) && read == value) break;
  }
  if (!exponent) {
    int power = 0;
    (void)absl::SimpleAtoi(absl::string_view(text).substr(text.find('e') + 1), &power);
    text = absl::StrFormat("%.*f", std::max(0, digits - power), value);
  }
  return exponent || absl::StrContains(text, '.') ? text : absl::StrCat(text, ".0");
}

std::string PythonRepr(const YamlNode& node) {
  const std::string text = PythonText(node);
  const bool is_text =
      node.kind == YamlNode::Kind::kScalar &&
      (node.quoted || (PythonWord(node.text) == nullptr && NumberOf(node.text) == Number::kNone));
  if (!is_text) return text;
  const bool doubled = absl::StrContains(text, '\'') && !absl::StrContains(text, '"');
  const char* quote = doubled ? "\"" : "'";
  const std::string inner =
      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\t", "\\t"}});
  return absl::StrCat(quote, doubled ? inner : absl::StrReplaceAll(inner, {{"'", "\\'"}}), quote);
}

}  // namespace

absl::Span<const AccelerateField> FsdpFields() { return kFsdp; }
absl::Span<const AccelerateField> DeepSpeedFields() { return kDeepSpeed; }
absl::Span<const AccelerateField> DynamoFields() { return kDynamo; }
absl::Span<const AccelerateField> Fp8Fields() { return kFp8; }
absl::Span<const AccelerateField> MegatronFields() { return kMegatron; }
absl::Span<const AccelerateField> ParallelismFields() { return kParallelism; }
absl::Span<const AccelerateField> ContextParallelFields() { return kContextParallel; }
absl::Span<const AccelerateField> SequenceParallelFields() { return kSequenceParallel; }
absl::Span<const AccelerateSection> AccelerateSections() { return kSections; }

bool IsAccelerateField(absl::string_view key) {
  for (const absl::Span<const Field> fields :
       {FsdpFields(), DeepSpeedFields(), DynamoFields(), Fp8Fields(), MegatronFields(),
        ParallelismFields(), ContextParallelFields(), SequenceParallelFields()}) {
    if (std::any_of(fields.begin(), fields.end(),
                    [key](const Field& field) { return key == field.key; })) {
      return true;
    }
  }
  return false;
}

std::string PythonText(const YamlNode& node) {
  std::string text;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "None";
    case YamlNode::Kind::kList:
      for (const YamlNode& item : node.items) {
        absl::StrAppend(&text, text.empty() ? "" : ", ", PythonRepr(item));
      }
      return absl::StrCat("[", text, "]");
    case YamlNode::Kind::kMap:
      for (size_t i = 0; i < node.items.size(); ++i) {
        YamlNode key{.kind = YamlNode::Kind::kScalar, .text = node.keys[i]};
        absl::StrAppend(&text, text.empty() ? "" : ", ", PythonRepr(key), ": ",
                        PythonRepr(node.items[i]));
      }
      return absl::StrCat("{", text, "}");
    case YamlNode::Kind::kScalar:
      break;
  }
  if (node.quoted) return node.text;
  if (const char* word = PythonWord(node.text); word != nullptr) return word;
  const Number number = NumberOf(node.text);
  if (number == Number::kNone) return node.text;
  text = absl::StrReplaceAll(node.text, {{"_", ""}, {"+", ""}});
  double value = 0;
  if (number == Number::kWhole) return text;
  return absl::SimpleAtod(text, &value) ? FloatText(value) : node.text;
}

bool PythonTruth(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kList || node.kind == YamlNode::Kind::kMap) {
    return !node.items.empty();
  }
  const std::string text = PythonText(node);
  if (node.quoted) return !text.empty();
  return text != "False" && text != "None" && text != "0" && text != "0.0";
}

}  // namespace ddprun::launcher
