#include "tools/doctor/machine_reports.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using ReportJson = nlohmann::ordered_json;

constexpr size_t kValueShown = 200;

// A property to compare, and its JSON pointer (RFC 6901) in the report.
struct ReportTrait {
  const char* name;
  const char* pointer;
  bool serious;
};
constexpr ReportTrait kReportTraits[] = {
    {"ddprun", "/ddprun", true},
    {"torch", "/python/torch", true},
    {"torch's CUDA", "/python/torch_cuda", true},
    {"NCCL", "/python/nccl", true},
    {"Python", "/python/version", true},
    {"DeepSpeed", "/python/deepspeed", true},
    {"driver", "/driver/version", false},
    {"driver's CUDA", "/driver/cuda", false},
    {"system", "/system", false},
    {"kernel", "/kernel", false},
    {"glibc", "/glibc", false},
    {"container", "/container", false},
    {"CPU", "/cpu/model", false},
    {"usable CPUs", "/cpu/usable", false},
    {"memory", "/memory/total_bytes", false},
    {"memory limit", "/memory/cgroup_limit_bytes", false},
    {"/dev/shm", "/shared_memory/total_bytes", false},
    {"open files", "/limits/open_files/soft", false},
    {"locked memory", "/limits/locked_memory_bytes/soft", false},
    {"processes", "/limits/processes/soft", false},
    {"clock synchronised", "/clock/synchronised", false},
};

std::string ShownValue(const ReportJson& value, absl::string_view pointer) {
  if (value.is_null()) return "none";
  if (value.is_string()) return Shown(value.get<std::string>(), kValueShown);
  if (value.is_number_unsigned() && absl::StrContains(pointer, "_bytes")) {
    return BytesText(value.get<uint64_t>());
  }
  return Shown(value.dump(-1, ' ', false, ReportJson::error_handler_t::replace), kValueShown);
}

const ReportJson* Member(const ReportJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// "4 x NVIDIA L4, 22.5 GiB", one for each model.
std::string GpusOf(const ReportJson& report) {
  std::map<std::string, int> models;
  const ReportJson* gpus = Member(report, "gpus");
  if (gpus == nullptr || !gpus->is_array()) return "unknown";
  for (const ReportJson& gpu : *gpus) {
    const ReportJson* name = Member(gpu, "name");
    const ReportJson* memory = Member(gpu, "memory_bytes");
    ++models[absl::StrCat(name == nullptr ? "unknown" : ShownValue(*name, "/name"), ", ",
                          memory == nullptr ? "unknown" : ShownValue(*memory, "/memory_bytes"))];
  }
  std::vector<std::string> texts;
  texts.reserve(models.size());
  for (const auto& [model, count] : models) texts.push_back(absl::StrCat(count, " x ", model));
  return texts.empty() ? "none" : absl::StrJoin(texts, "; ");
}

// The speeds of interfaces that are up.
std::string SpeedsOf(const ReportJson& report) {
  const ReportJson* network = Member(report, "network");
  const ReportJson* interfaces = network == nullptr ? nullptr : Member(*network, "interfaces");
  if (interfaces == nullptr || !interfaces->is_array()) return "unknown";
  std::vector<std::string> texts;
  for (const ReportJson& interface : *interfaces) {
    const ReportJson* name = Member(interface, "name");
    const ReportJson* up = Member(interface, "up");
    const ReportJson* speed = Member(interface, "speed_mbit_s");
    if (name == nullptr || up == nullptr || *up != true || speed == nullptr || speed->is_null()) {
      continue;
    }
    texts.push_back(absl::StrCat(ShownValue(*name, ""), " ", ShownValue(*speed, ""), " Mbit/s"));
  }
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

std::string VariablesOf(const ReportJson& report) {
  const ReportJson* variables = Member(report, "environment");
  if (variables == nullptr || !variables->is_object()) return "unknown";
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables->items()) {
    texts.push_back(absl::StrCat(Shown(name, kValueShown), "=", ShownValue(value, "")));
  }
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

// A sentence or a command, with control characters replaced.
std::string FindingText(const ReportJson& value) {
  if (!value.is_string()) return "unknown";
  return absl::StrReplaceAll(Printable(value.get<std::string>()), {{"\n", " "}});
}

std::string TextOf(const ReportJson& object, const char* name) {
  const ReportJson* value = Member(object, name);
  return value == nullptr ? "unknown" : FindingText(*value);
}

}  // namespace

absl::StatusOr<MachineSummary> SummarizeReport(absl::string_view report) {
  const ReportJson json = ReportJson::parse(report.begin(), report.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("a node's report is no JSON object");
  MachineSummary summary{.host = "unknown", .traits = {}};
  if (const ReportJson* host = Member(json, "host")) summary.host = ShownValue(*host, "");
  summary.traits.push_back({.name = "GPUs", .value = GpusOf(json), .serious = true});
  for (const ReportTrait& trait : kReportTraits) {
    const ReportJson::json_pointer pointer(trait.pointer);
    summary.traits.push_back(
        {.name = trait.name,
         .value = json.contains(pointer) ? ShownValue(json.at(pointer), trait.pointer) : "unknown",
         .serious = trait.serious});
  }
  summary.traits.push_back({.name = "network", .value = SpeedsOf(json), .serious = false});
  summary.traits.push_back({.name = "variables", .value = VariablesOf(json), .serious = false});
  return summary;
}

absl::StatusOr<MachineFindings> ReadFindings(absl::string_view report) {
  const ReportJson json = ReportJson::parse(report.begin(), report.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("a node's report is no JSON object");
  MachineFindings machine{.host = TextOf(json, "host"), .findings = {}};
  const ReportJson* list = Member(json, "findings");
  if (list == nullptr || !list->is_array()) return machine;
  for (const ReportJson& each : *list) {
    Finding finding{.severity = Severity::kError,
                    .id = TextOf(each, "id"),
                    .what = TextOf(each, "what"),
                    .why = TextOf(each, "why"),
                    .fix = {}};
    for (const Severity severity : {Severity::kWarning, Severity::kNote}) {
      if (TextOf(each, "severity") == SeverityName(severity)) finding.severity = severity;
    }
    const ReportJson* fix = Member(each, "fix");
    if (fix != nullptr && fix->is_array()) {
      for (const ReportJson& command : *fix) finding.fix.push_back(FindingText(command));
    }
    machine.findings.push_back(std::move(finding));
  }
  return machine;
}

std::string ComparisonJson(const std::vector<std::string>& reports,
                           const std::vector<MachineSummary>& machines) {
  ReportJson nodes = ReportJson::array();
  for (const std::string& report : reports) {
    ReportJson node = ReportJson::parse(report, nullptr, false);
    if (!node.is_discarded()) nodes.push_back(std::move(node));
  }
  ReportJson differences = ReportJson::array();
  for (const MachineDifference& difference : CompareMachines(machines)) {
    ReportJson values = ReportJson::array();
    for (const auto& side : difference.sides) {
      values.push_back({{"value", side.value}, {"hosts", side.hosts}});
    }
    differences.push_back({{"name", difference.name},
                           {"serious", difference.serious},
                           {"values", std::move(values)}});
  }
  const ReportJson json = {{"nodes", std::move(nodes)}, {"differences", std::move(differences)}};
  return json.dump(2, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

}  // namespace ddprun::launcher
