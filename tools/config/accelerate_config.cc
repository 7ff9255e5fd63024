#include "tools/config/accelerate_config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

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
                                 "dynamo_backend",
                                 "fp16",
                                 "enable_cpu_affinity",
                                 "downcast_bf16",
                                 "main_training_function"};

// Fields that `accelerate launch` has for TPUs and for MPI; elsewhere it does nothing with them.
constexpr const char* kForeign[] = {"tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo",
                                    "tpu_vm",   "tpu_env",  "command_file",    "commands"};

// How accelerate starts the processes of each kind: by itself, by torchrun, or as DeepSpeed's.
enum class Launcher { kSimple, kTorchrun, kDeepSpeed };
struct Kind {
  const char* name;  // distributed_type
  Launcher launcher;
  const char* devices;  // the variable that names those of gpu_ids
};
constexpr Kind kKinds[] = {
    {"NO", Launcher::kSimple, "CUDA_VISIBLE_DEVICES"},
    {"MULTI_CPU", Launcher::kSimple, "CUDA_VISIBLE_DEVICES"},
    {"MULTI_GPU", Launcher::kTorchrun, "CUDA_VISIBLE_DEVICES"},
    {"MULTI_XPU", Launcher::kTorchrun, "ZE_AFFINITY_MASK"},
    {"MULTI_NPU", Launcher::kTorchrun, "ASCEND_RT_VISIBLE_DEVICES"},
    {"MULTI_MLU", Launcher::kTorchrun, "MLU_VISIBLE_DEVICES"},
    {"MULTI_SDAA", Launcher::kTorchrun, "SDAA_VISIBLE_DEVICES"},
    {"MULTI_MUSA", Launcher::kTorchrun, "MUSA_VISIBLE_DEVICES"},
    {"MULTI_HPU", Launcher::kTorchrun, "HABANA_VISIBLE_MODULES"},
    {"MULTI_NEURON", Launcher::kTorchrun, "NEURON_RT_VISIBLE_CORES"},
    {"FSDP", Launcher::kTorchrun, "CUDA_VISIBLE_DEVICES"},
    {"MEGATRON_LM", Launcher::kTorchrun, "CUDA_VISIBLE_DEVICES"},
    {"DEEPSPEED", Launcher::kDeepSpeed, "CUDA_VISIBLE_DEVICES"},
};

class Converter {
 public:
  Converter(const std::string& file, const YamlNode& document) : file_(file), document_(document) {}

  absl::StatusOr<ConfigFile> Convert() {
    DDPRUN_RETURN_IF_ERROR(CheckKeys());
    DDPRUN_RETURN_IF_ERROR(ConvertKind());
    DDPRUN_RETURN_IF_ERROR(ConvertSize());
    DDPRUN_RETURN_IF_ERROR(ConvertPrecision());
    DDPRUN_RETURN_IF_ERROR(ConvertDevices());
    DDPRUN_RETURN_IF_ERROR(ReadSections());
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

  void Warn(absl::string_view where, absl::string_view what) {
    config_.warnings.push_back(absl::StrCat(where, " ", what));
  }
  bool Is(absl::string_view kind) const { return kind == kind_->name; }
  // A field of the sections that has a true value.
  bool IsTrue(absl::string_view key, bool fallback) const {
    const auto found = fields_.find(std::string(key));
    return found == fields_.end() ? fallback : PythonTruth(*found->second);
  }

  absl::Status CheckKeys();
  absl::Status ConvertKind();
  absl::Status ConvertSize();
  absl::Status ConvertNodes(int64_t machines);
  absl::Status ConvertPrecision();
  absl::Status ConvertDevices();
  absl::Status ReadSections();
  absl::Status ConvertSections();
  absl::Status ConvertDeepSpeed();
  absl::Status ConvertFsdp();
  void ConvertFp8();
  void ConvertParallelism();
  void Export(absl::Span<const AccelerateField> fields);

  const std::string& file_;
  const YamlNode& document_;
  const Kind* kind_ = nullptr;
  std::string precision_;
  bool gives_precision_ = false;  // the file has it
  // The fields of all sections, by their full names.
  std::map<std::string, const YamlNode*> fields_;
  YamlNode dynamo_backend_;  // of older files, at the top
  ConfigFile config_;
};

absl::Status Converter::CheckKeys() {
  for (const std::string& key : document_.keys) {
    if (std::find(std::begin(kRead), std::end(kRead), key) != std::end(kRead)) continue;
    const auto sections = AccelerateSections();
    if (std::any_of(sections.begin(), sections.end(),
                    [&key](const AccelerateSection& section) { return key == section.key; })) {
      continue;
    }
    if (std::find(std::begin(kForeign), std::end(kForeign), key) == std::end(kForeign)) {
      return Wrong(key, "is no field of accelerate that ddprun knows; remove it");
    }
    const YamlNode* node = Get(key);
    if (node != nullptr && PythonTruth(*node)) Warn(Where(key), "has no effect: it is for TPUs");
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
  DDPRUN_ASSIGN_OR_RETURN(const std::string name, Text("distributed_type", ""));
  if (name.empty()) return Wrong("distributed_type", "is missing; give NO or MULTI_GPU");
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) kind_ = &kind;
    known.emplace_back(kind.name);
  }
  if (kind_ != nullptr) return absl::OkStatus();
  return Wrong("distributed_type",
               absl::StrCat(Quoted(name), " is for accelerate launch alone; ddprun knows ",
                            absl::StrJoin(known, ", ")));
}

// How many workers a node has may be said elsewhere, too: on the command line, or by Slurm.
absl::Status Converter::ConvertSize() {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t machines, Integer("num_machines", 1));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t processes, Integer("num_processes", Is("NO") ? 1 : -1));
  if (machines < 1) return Wrong("num_machines", "must be at least 1");
  Set("nnodes", "num_machines", absl::StrCat(machines));
  if (processes < 1) {
    config_.no_workers = Wrong("num_processes",
                               "says not how many processes the job has; give the number, over "
                               "all machines, or --nproc_per_node");
  } else if (processes % machines != 0) {
    config_.no_workers = Wrong(
        "num_processes", absl::StrCat(processes, " processes can't be divided evenly between ",
                                      machines, " machines; use --nproc_per_node on each instead"));
  } else {
    Set("nproc-per-node", "num_processes", absl::StrCat(processes / machines));
  }
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
  DDPRUN_ASSIGN_OR_RETURN(bool fp16, Boolean("fp16"));
  fp16 = fp16 && document_.Find("mixed_precision") == nullptr;
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text("mixed_precision", fp16 ? "fp16" : "no"));
  gives_precision_ = fp16 || Get("mixed_precision") != nullptr;
  precision_ = absl::AsciiStrToLower(text);
  for (const char* known : {"no", "fp16", "bf16", "fp8"}) {
    if (precision_ != known) continue;
    Export("ACCELERATE_MIXED_PRECISION", precision_);
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
  // The other launchers have no variable for it.
  if (kind_->launcher == Launcher::kSimple) {
    Export("ACCELERATE_USE_CPU", use_cpu ? "True" : "False");
    if (use_cpu) {
      Export("KMP_AFFINITY", "granularity=fine,compact,1,0");
      Export("KMP_BLOCKTIME", "1");
    }
  }
  if (use_cpu) {
    Set("omp-threads", "use_cpu", "auto");
  } else if (kind_->launcher != Launcher::kDeepSpeed) {
    Export("OMP_NUM_THREADS", "1");
  }
  if (debug) Export("ACCELERATE_DEBUG_MODE", "true");
  if (affinity) {
    Warn(Where("enable_cpu_affinity"),
         "has no effect in a file, as with accelerate launch; export ACCELERATE_CPU_AFFINITY=1");
  }
  if (devices != "all") Export(kind_->devices, devices);
  const auto no_effect = [this](absl::string_view key) {
    config_.warnings.push_back(absl::StrCat(Where(key), " has no effect: it is for TPUs"));
  };
  if (downcast) no_effect("downcast_bf16");
  if (function != "main") no_effect("main_training_function");
  return absl::OkStatus();
}

// A field that no variable is made of is left out, as by accelerate.
absl::Status Converter::ReadSections() {
  for (const AccelerateSection& section : AccelerateSections()) {
    const YamlNode* node = Get(section.key);
    if (node == nullptr) continue;
    const bool is_empty = node->kind == YamlNode::Kind::kList && node->items.empty();
    if (node->kind != YamlNode::Kind::kMap && !is_empty) {
      return Wrong(section.key, "must be lines of 'field: value'");
    }
    for (size_t i = 0; i < node->keys.size(); ++i) {
      const std::string& key = node->keys[i];
      const std::string full = absl::StartsWith(key, section.prefix)
                                   ? key
                                   : absl::StrCat(absl::StripSuffix(section.prefix, "_"), "_", key);
      const std::string where =
          absl::StrCat(file_, ":", node->items[i].line, ": ", section.key, ".", Shown(key, 80));
      fields_[full] = &node->items[i];
      if (full == "mpirun_hostfile" && kind_->launcher == Launcher::kSimple &&
          PythonTruth(node->items[i])) {
        return UsageError(absl::StrCat(where, ": ddprun starts the processes itself; remove it"));
      }
      const bool is_known = IsAccelerateField(full) || absl::StartsWith(full, "mpirun_") ||
                            (precision_ == "fp8" && absl::StartsWith(full, "fp8_"));
      if (!is_known) {
        Warn(where, "has no effect: accelerate launch makes no variable of it");
      }
    }
  }
  // Older files have the one field at the top, in the place of the section.
  DDPRUN_ASSIGN_OR_RETURN(const std::string backend, Text("dynamo_backend", ""));
  if (backend.empty()) return absl::OkStatus();
  std::erase_if(fields_,
                [](const auto& field) { return absl::StartsWith(field.first, "dynamo_"); });
  dynamo_backend_ = *Get("dynamo_backend");
  fields_["dynamo_backend"] = &dynamo_backend_;
  return absl::OkStatus();
}

void Converter::Export(absl::Span<const AccelerateField> fields) {
  for (const AccelerateField& field : fields) {
    if (field.name == nullptr) continue;
    const auto found = fields_.find(field.key);
    const YamlNode* node = found == fields_.end() ? nullptr : found->second;
    // Without a default of its own, a field without a value is none.
    if (field.fallback == nullptr && (node == nullptr || node->kind == YamlNode::Kind::kNull)) {
      continue;
    }
    std::string value = node == nullptr ? field.fallback : PythonText(*node);
    if (field.letters == AccelerateField::kLower) value = absl::AsciiStrToLower(value);
    if (field.letters == AccelerateField::kUpper) value = absl::AsciiStrToUpper(value);
    Export(field.name, value);
  }
}

absl::Status Converter::ConvertDeepSpeed() {
  Export("ACCELERATE_USE_DEEPSPEED", "true");
  std::vector<std::string> names;
  if (const YamlNode* section = Get("deepspeed_config"); section != nullptr) names = section->keys;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t machines, Integer("num_machines", 1));
  const auto launcher = fields_.find("deepspeed_multinode_launcher");
  if (machines > 1 && (launcher == fields_.end() || launcher->second->text != "standard")) {
    return Wrong("deepspeed_config",
                 "DeepSpeed's own launchers start other machines over ssh; set "
                 "deepspeed_multinode_launcher: standard, and run ddprun on each machine");
  }
  if (gives_precision_) names.emplace_back("mixed_precision");
  Export("ACCELERATE_CONFIG_DS_FIELDS", absl::AsciiStrToLower(absl::StrJoin(names, ",")));
  Export(DeepSpeedFields());
  return absl::OkStatus();
}

absl::Status Converter::ConvertFsdp() {
  if (IsTrue("fsdp_cpu_ram_efficient_loading", true) && !IsTrue("fsdp_sync_module_states", true)) {
    return Wrong("fsdp_config",
                 "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states: true");
  }
  Export("ACCELERATE_USE_FSDP", "true");
  Export(FsdpFields());
  return absl::OkStatus();
}

// Any field of this section becomes a variable.
void Converter::ConvertFp8() {
  Export(Fp8Fields());
  static constexpr const char* kOverride[] = {"FPROP", "DGRAD", "WGRAD"};
  for (const auto& [key, node] : fields_) {
    if (!absl::StartsWith(key, "fp8_") || IsAccelerateField(key)) continue;
    if (node->kind == YamlNode::Kind::kNull) continue;
    Export(absl::StrCat("ACCELERATE_", absl::AsciiStrToUpper(key)), PythonText(*node));
  }
  const auto found = fields_.find("fp8_override_linear_precision");
  const bool given = found != fields_.end();
  if (given && found->second->kind == YamlNode::Kind::kNull) return;
  for (size_t i = 0; i < std::size(kOverride); ++i) {
    const bool has = given && i < found->second->items.size();
    Export(absl::StrCat("ACCELERATE_FP8_OVERRIDE_", kOverride[i]),
           has ? PythonText(found->second->items[i]) : "False");
  }
}

void Converter::ConvertParallelism() {
  Export("ACCELERATE_USE_PARALLELISM_CONFIG", "true");
  Export(ParallelismFields());
  const auto is_above_one = [this](const char* key) {
    const auto found = fields_.find(key);
    return found != fields_.end() && ReadInteger(found->second->text).value_or(1) > 1;
  };
  if (is_above_one("parallelism_config_cp_size")) Export(ContextParallelFields());
  if (is_above_one("parallelism_config_sp_size")) Export(SequenceParallelFields());
}

absl::Status Converter::ConvertSections() {
  if (precision_ == "fp8") ConvertFp8();
  const bool is_parallel =
      Get("parallelism_config") != nullptr && !Get("parallelism_config")->items.empty();
  if (kind_->launcher == Launcher::kDeepSpeed) {
    DDPRUN_RETURN_IF_ERROR(ConvertDeepSpeed());
  } else {
    Export(DynamoFields());
  }
  if (Is("FSDP")) DDPRUN_RETURN_IF_ERROR(ConvertFsdp());
  if (Is("MEGATRON_LM")) {
    Export("ACCELERATE_USE_MEGATRON_LM", "true");
    Export(MegatronFields());
  }
  if (is_parallel && kind_->launcher != Launcher::kSimple) ConvertParallelism();
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
