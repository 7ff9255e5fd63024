#include "launcher/config/accelerate_config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

// A field that accelerate hands to the workers as a variable.
struct Variable {
  const char* key;
  const char* name;      // null = read elsewhere
  const char* fallback;  // value without the field; null = the variable is not set then
  enum { kAsIs, kLower, kUpper } letters;
};

constexpr Variable kFsdp[] = {
    {"fsdp_version", "FSDP_VERSION", "1", Variable::kAsIs},
    {"fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", "FULL_SHARD", Variable::kAsIs},
    {"fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", "true", Variable::kLower},
    {"fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", "false", Variable::kLower},
    {"fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", "100000000", Variable::kAsIs},
    {"fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", nullptr, Variable::kAsIs},
    {"fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", nullptr,
     Variable::kAsIs},
    {"fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", nullptr, Variable::kAsIs},
    {"fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", nullptr, Variable::kAsIs},
    {"fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", "false", Variable::kLower},
    {"fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", "true", Variable::kLower},
    {"fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", "true", Variable::kLower},
    {"fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", "true", Variable::kLower},
    {"fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", "false", Variable::kLower},
    {"fsdp_activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "false",
     Variable::kLower},
    {"fsdp_ignored_modules", "FSDP_IGNORED_MODULES", nullptr, Variable::kAsIs},
};

constexpr Variable kDeepSpeed[] = {
    {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", nullptr, Variable::kAsIs},
    {"gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", nullptr,
     Variable::kAsIs},
    {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", nullptr, Variable::kLower},
    {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", nullptr,
     Variable::kLower},
    {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", nullptr,
     Variable::kLower},
    {"offload_optimizer_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", nullptr,
     Variable::kAsIs},
    {"offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", nullptr,
     Variable::kAsIs},
    {"zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT", nullptr, Variable::kLower},
    {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", nullptr,
     Variable::kLower},
    {"deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE", nullptr, Variable::kAsIs},
    {"deepspeed_moe_layer_cls_names", "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", nullptr,
     Variable::kAsIs},
    {"deepspeed_multinode_launcher", nullptr, nullptr, Variable::kAsIs},
};

constexpr Variable kDynamo[] = {
    {"dynamo_backend", "ACCELERATE_DYNAMO_BACKEND", "NO", Variable::kUpper},
    {"dynamo_mode", "ACCELERATE_DYNAMO_MODE", "default", Variable::kAsIs},
    {"dynamo_use_fullgraph", "ACCELERATE_DYNAMO_USE_FULLGRAPH", "False", Variable::kAsIs},
    {"dynamo_use_dynamic", "ACCELERATE_DYNAMO_USE_DYNAMIC", "False", Variable::kAsIs},
    {"dynamo_use_regional_compilation", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False",
     Variable::kAsIs},
};

// Fields that are read below, one by one.
constexpr const char* kRead[] = {"compute_environment",
                                 "distributed_type",
                                 "debug",
                                 "mixed_precision",
                                 "use_cpu",
                                 "num_processes",
                                 "num_machines",
                                 "machine_rank",
                                 "main_process_ip",
                                 "main_process_port",
                                 "rdzv_backend",
                                 "same_network",
                                 "gpu_ids",
                                 "fsdp_config",
                                 "deepspeed_config",
                                 "dynamo_config",
                                 "dynamo_backend",
                                 "fp16",
                                 "enable_cpu_affinity",
                                 "downcast_bf16",
                                 "main_training_function"};

// Fields that may be there only without a value: what they ask for, ddprun doesn't do.
struct Refusal {
  const char* key;
  const char* what;
};
constexpr Refusal kRefused[] = {
    {"megatron_lm_config", "Megatron-LM is set up by accelerate launch alone; use that"},
    {"parallelism_config",
     "is not translated; export the PARALLELISM_CONFIG_* variables and "
     "remove it"},
    {"fp8_config", "is not translated; export the ACCELERATE_FP8_* variables and remove it"},
    {"mpirun_config", "ddprun starts the processes itself; remove it"},
    {"tpu_name", "is for TPUs; use accelerate launch"},
    {"tpu_zone", "is for TPUs; use accelerate launch"},
    {"tpu_use_cluster", "is for TPUs; use accelerate launch"},
    {"tpu_use_sudo", "is for TPUs; use accelerate launch"},
    {"tpu_vm", "is for TPUs; use accelerate launch"},
    {"tpu_env", "is for TPUs; use accelerate launch"},
    {"command_file", "is for TPUs; use accelerate launch"},
    {"commands", "is for TPUs; use accelerate launch"},
};

// Python's str() of a plain value: YAML 1.1's booleans are True and False.
std::string PythonText(const YamlNode& node) {
  if (node.quoted) return node.text;
  const std::string word = absl::AsciiStrToLower(node.text);
  if (word == "true" || word == "yes" || word == "on") return "True";
  if (word == "false" || word == "no" || word == "off") return "False";
  return node.text;
}

class Converter {
 public:
  Converter(const std::string& file, const YamlNode& document) : file_(file), document_(document) {}

  absl::StatusOr<ConfigFile> Convert() {
    DDPRUN_RETURN_IF_ERROR(CheckKeys());
    DDPRUN_RETURN_IF_ERROR(ConvertKind());
    DDPRUN_RETURN_IF_ERROR(ConvertSize());
    DDPRUN_RETURN_IF_ERROR(ConvertPrecision());
    DDPRUN_RETURN_IF_ERROR(ConvertDevices());
    DDPRUN_RETURN_IF_ERROR(ConvertSections());
    return std::move(config_);
  }

 private:
  std::string Where(absl::string_view key) const {
    const YamlNode* node = document_.Find(key);
    return absl::StrCat(file_, ":", node == nullptr ? document_.line : node->line, ": ",
                        Shown(key, 80));
  }
  absl::Status Wrong(absl::string_view key, absl::string_view what) const {
    return UsageError(absl::StrCat(Where(key), ": ", what));
  }
  // The field when it says anything, else null.
  const YamlNode* Get(absl::string_view key) const {
    const YamlNode* node = document_.Find(key);
    if (node == nullptr || node->kind == YamlNode::Kind::kNull) return nullptr;
    return node;
  }
  absl::StatusOr<std::string> Text(absl::string_view key, absl::string_view fallback) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return std::string(fallback);
    if (node->kind != YamlNode::Kind::kScalar) return Wrong(key, "must be one text or number");
    return node->text;
  }
  absl::StatusOr<bool> Boolean(absl::string_view key) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text(key, "false"));
    const std::optional<bool> value = ReadBoolean(text);
    if (!value.has_value()) return Wrong(key, absl::StrCat(Quoted(text), " is not true or false"));
    return *value;
  }
  absl::StatusOr<int64_t> Integer(absl::string_view key, int64_t fallback) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text(key, absl::StrCat(fallback)));
    const std::optional<int64_t> value = ReadInteger(text);
    if (!value.has_value()) {
      return Wrong(key, absl::StrCat(Quoted(text), " is not a whole number"));
    }
    return *value;
  }
  void Set(absl::string_view option, absl::string_view key, std::string value) {
    config_.settings.push_back(
        {.name = std::string(option),
         .where = Where(key),
         .value = {.kind = YamlNode::Kind::kScalar, .text = std::move(value)}});
  }
  void Export(absl::string_view name, absl::string_view value) {
    config_.worker_environment.emplace_back(name, value);
  }

  absl::Status CheckKeys() const;
  absl::Status ConvertKind();
  absl::Status ConvertSize();
  absl::Status ConvertNodes(int64_t machines);
  absl::Status ConvertPrecision();
  absl::Status ConvertDevices();
  absl::Status ConvertSections();
  absl::Status ConvertDeepSpeed();
  template <size_t size>
  absl::Status ConvertSection(absl::string_view section, absl::string_view prefix,
                              const Variable (&variables)[size]);

  const std::string& file_;
  const YamlNode& document_;
  std::string kind_;  // distributed_type
  ConfigFile config_;
};

absl::Status Converter::CheckKeys() const {
  for (const std::string& key : document_.keys) {
    if (std::find(std::begin(kRead), std::end(kRead), key) != std::end(kRead)) continue;
    const auto* refused = std::find_if(std::begin(kRefused), std::end(kRefused),
                                       [&key](const Refusal& other) { return key == other.key; });
    if (refused == std::end(kRefused)) {
      return Wrong(key, "is no field of accelerate that ddprun knows; remove it");
    }
    const YamlNode* node = Get(key);
    const bool empty = node == nullptr || (node->kind == YamlNode::Kind::kScalar
                                               ? !ReadBoolean(node->text).value_or(true)
                                               : node->items.empty());
    if (!empty) return Wrong(key, refused->what);
  }
  return absl::OkStatus();
}

absl::Status Converter::ConvertKind() {
  DDPRUN_ASSIGN_OR_RETURN(const std::string environment,
                          Text("compute_environment", "LOCAL_MACHINE"));
  if (environment != "LOCAL_MACHINE") {
    return Wrong("compute_environment", absl::StrCat(Quoted(environment),
                                                     " is for accelerate launch alone; ddprun runs "
                                                     "on LOCAL_MACHINE"));
  }
  DDPRUN_ASSIGN_OR_RETURN(kind_, Text("distributed_type", ""));
  if (kind_.empty()) return Wrong("distributed_type", "is missing; give NO or MULTI_GPU");
  for (const char* known : {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED"}) {
    if (kind_ == known) return absl::OkStatus();
  }
  return Wrong("distributed_type", absl::StrCat(Quoted(kind_),
                                                " is for accelerate launch alone; ddprun knows NO, "
                                                "MULTI_CPU, MULTI_GPU, FSDP and DEEPSPEED"));
}

absl::Status Converter::ConvertSize() {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t machines, Integer("num_machines", 1));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t processes,
                          Integer("num_processes", kind_ == "NO" ? 1 : -1));
  if (machines < 1) return Wrong("num_machines", "must be at least 1");
  if (processes < 1) {
    return Wrong("num_processes",
                 "says not how many processes the job has; give the number, over "
                 "all machines");
  }
  if (processes % machines != 0) {
    return Wrong("num_processes",
                 absl::StrCat(processes, " processes can't be divided evenly between ", machines,
                              " machines; use --nproc_per_node on each instead"));
  }
  Set("nnodes", "num_machines", absl::StrCat(machines));
  Set("nproc-per-node", "num_processes", absl::StrCat(processes / machines));
  DDPRUN_ASSIGN_OR_RETURN(const std::string port, Text("main_process_port", ""));
  if (machines > 1) return ConvertNodes(machines);
  if (!port.empty()) Set("master-port", "main_process_port", port);
  return absl::OkStatus();
}

absl::Status Converter::ConvertNodes(int64_t machines) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string host, Text("main_process_ip", ""));
  DDPRUN_ASSIGN_OR_RETURN(const std::string port, Text("main_process_port", ""));
  for (const auto& [key, value] :
       {std::pair("main_process_ip", &host), std::pair("main_process_port", &port)}) {
    if (value->empty()) {
      return Wrong(key, absl::StrCat("is missing, and the job has ", machines,
                                     " machines; give "
                                     "the first one's"));
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string backend, Text("rdzv_backend", "static"));
  DDPRUN_ASSIGN_OR_RETURN(const bool same_network, Boolean("same_network"));
  Set("rdzv-backend", "rdzv_backend", backend);
  if (backend == "static") {
    DDPRUN_ASSIGN_OR_RETURN(const std::string rank, Text("machine_rank", "0"));
    Set("node-rank", "machine_rank", rank);
  }
  if (backend == "static" && same_network) {
    Set("master-addr", "main_process_ip", host);
    Set("master-port", "main_process_port", port);
  } else {
    const bool is_v6 = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
    Set("rdzv-endpoint", "main_process_ip",
        is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port));
  }
  return absl::OkStatus();
}

absl::Status Converter::ConvertPrecision() {
  DDPRUN_ASSIGN_OR_RETURN(const bool fp16, Boolean("fp16"));
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text("mixed_precision", fp16 ? "fp16" : "no"));
  const std::string precision = absl::AsciiStrToLower(text);
  for (const char* known : {"no", "fp16", "bf16", "fp8"}) {
    if (precision != known) continue;
    Export("ACCELERATE_MIXED_PRECISION", precision);
    return absl::OkStatus();
  }
  return Wrong("mixed_precision",
               absl::StrCat(Quoted(text), " is no precision; give no, fp16, bf16 or fp8"));
}

absl::Status Converter::ConvertDevices() {
  DDPRUN_ASSIGN_OR_RETURN(const bool use_cpu, Boolean("use_cpu"));
  DDPRUN_ASSIGN_OR_RETURN(const bool debug, Boolean("debug"));
  DDPRUN_ASSIGN_OR_RETURN(const bool affinity, Boolean("enable_cpu_affinity"));
  DDPRUN_ASSIGN_OR_RETURN(const std::string devices, Text("gpu_ids", "all"));
  DDPRUN_ASSIGN_OR_RETURN(const bool downcast, Boolean("downcast_bf16"));
  DDPRUN_ASSIGN_OR_RETURN(const std::string function, Text("main_training_function", "main"));
  if (use_cpu) {
    Export("ACCELERATE_USE_CPU", "True");
    Export("KMP_AFFINITY", "granularity=fine,compact,1,0");
    Export("KMP_BLOCKTIME", "1");
    Set("omp-threads", "use_cpu", "auto");
  } else {
    if (kind_ == "NO") Export("ACCELERATE_USE_CPU", "False");
    Export("OMP_NUM_THREADS", "1");
  }
  if (debug) Export("ACCELERATE_DEBUG_MODE", "true");
  if (affinity) Export("ACCELERATE_CPU_AFFINITY", "1");
  if (devices != "all") Export("CUDA_VISIBLE_DEVICES", devices);
  const auto no_effect = [this](absl::string_view key) {
    config_.warnings.push_back(absl::StrCat(Where(key), " has no effect: it is for TPUs"));
  };
  if (downcast) no_effect("downcast_bf16");
  if (function != "main") no_effect("main_training_function");
  return absl::OkStatus();
}

// Exports the variables of a section, whose keys may lack the prefix.
template <size_t size>
absl::Status Converter::ConvertSection(absl::string_view section, absl::string_view prefix,
                                       const Variable (&variables)[size]) {
  const YamlNode* node = Get(section);
  if (node != nullptr && node->kind != YamlNode::Kind::kMap) {
    return Wrong(section, "must be lines of 'field: value'");
  }
  std::vector<const YamlNode*> values(size);
  for (size_t i = 0; node != nullptr && i < node->keys.size(); ++i) {
    const std::string& key = node->keys[i];
    const std::string full = absl::StartsWith(key, prefix) ? key : absl::StrCat(prefix, key);
    const auto* variable =
        std::find_if(std::begin(variables), std::end(variables),
                     [&full](const Variable& other) { return full == other.key; });
    const std::string where =
        absl::StrCat(file_, ":", node->items[i].line, ": ", section, ".", Shown(key, 80));
    if (variable == std::end(variables)) {
      return UsageError(absl::StrCat(where,
                                     ": is no field that ddprun knows; remove it, or "
                                     "export its variable"));
    }
    if (node->items[i].kind == YamlNode::Kind::kNull) continue;
    if (node->items[i].kind != YamlNode::Kind::kScalar) {
      return UsageError(absl::StrCat(where, ": must be one text or number"));
    }
    values[static_cast<size_t>(variable - std::begin(variables))] = &node->items[i];
  }
  for (size_t i = 0; i < size; ++i) {
    if (variables[i].name == nullptr) continue;
    if (values[i] == nullptr && variables[i].fallback == nullptr) continue;
    std::string value = values[i] == nullptr ? variables[i].fallback : PythonText(*values[i]);
    if (variables[i].letters == Variable::kLower) value = absl::AsciiStrToLower(value);
    if (variables[i].letters == Variable::kUpper) value = absl::AsciiStrToUpper(value);
    Export(variables[i].name, value);
  }
  return absl::OkStatus();
}

absl::Status Converter::ConvertDeepSpeed() {
  Export("ACCELERATE_USE_DEEPSPEED", "true");
  std::vector<std::string> fields;
  if (const YamlNode* section = Get("deepspeed_config"); section != nullptr) {
    fields = section->keys;
    const YamlNode* launcher = section->Find("deepspeed_multinode_launcher");
    DDPRUN_ASSIGN_OR_RETURN(const int64_t machines, Integer("num_machines", 1));
    if (machines > 1 && (launcher == nullptr || launcher->text != "standard")) {
      return Wrong("deepspeed_config",
                   "DeepSpeed's own launchers start other machines over ssh; set "
                   "deepspeed_multinode_launcher: standard, and run ddprun on each machine");
    }
  }
  if (Get("mixed_precision") != nullptr) fields.emplace_back("mixed_precision");
  Export("ACCELERATE_CONFIG_DS_FIELDS", absl::AsciiStrToLower(absl::StrJoin(fields, ",")));
  return ConvertSection("deepspeed_config", "", kDeepSpeed);
}

absl::Status Converter::ConvertSections() {
  if (kind_ == "DEEPSPEED") DDPRUN_RETURN_IF_ERROR(ConvertDeepSpeed());
  if (kind_ == "FSDP") {
    Export("ACCELERATE_USE_FSDP", "true");
    DDPRUN_RETURN_IF_ERROR(ConvertSection("fsdp_config", "fsdp_", kFsdp));
  }
  // Older files have the one field at the top.
  DDPRUN_ASSIGN_OR_RETURN(const std::string backend, Text("dynamo_backend", ""));
  if (backend.empty()) return ConvertSection("dynamo_config", "dynamo_", kDynamo);
  Export("ACCELERATE_DYNAMO_BACKEND", absl::AsciiStrToUpper(backend));
  return absl::OkStatus();
}

}  // namespace

bool IsAccelerateConfig(const YamlNode& document) {
  return document.Find("compute_environment") != nullptr ||
         document.Find("distributed_type") != nullptr;
}

absl::StatusOr<ConfigFile> ConvertAccelerateConfig(const std::string& file,
                                                   const YamlNode& document) {
  return Converter(file, document).Convert();
}

}  // namespace ddprun::launcher
