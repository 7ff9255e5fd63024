#include "launcher/schedulers/slurm_step.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kHostBytesMax = 255;  // RFC 1035, section 2.3.4
constexpr size_t kDigitsMax = 9;       // of a number in brackets
constexpr uint32_t kTasksMax = 1'000'000;
constexpr uint64_t kTimePartMax = 1'000'000;  // of days, hours, minutes, seconds

absl::Status BadList(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the host list ", Quoted(text), " can't be read: ", what));
}

absl::Status TooMany(absl::string_view what, size_t most) {
  return absl::ResourceExhaustedError(absl::StrCat("the list names more than ", most, " ", what,
                                                   ", which is all that ddprun takes"));
}

// All digits, and few enough of them. nullopt: something else.
std::optional<uint32_t> ReadDigits(absl::string_view text) {
  uint32_t value = 0;
  const bool digits = !text.empty() && text.size() <= kDigitsMax &&
                      std::all_of(text.begin(), text.end(), [](char c) {
                        return absl::ascii_isdigit(static_cast<unsigned char>(c));
                      });
  if (!digits || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// The numbers of "01-03,7" as they are written: 01 02 03 7.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges, size_t most) {
  std::vector<std::string> numbers;
  for (absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    const bool single = range.find('-') == absl::string_view::npos;
    const std::optional<uint32_t> first = ReadDigits(ends.first);
    const std::optional<uint32_t> last = single ? first : ReadDigits(ends.second);
    if (!first.has_value() || !last.has_value()) {
      return BadList(range, "brackets hold numbers and ranges, as in [01-03,7]");
    }
    if (*last < *first) return BadList(range, "the range runs backwards");
    if (*last - *first >= most || numbers.size() + (*last - *first) >= most) {
      return TooMany("hosts", most);
    }
    for (uint32_t number = *first; number <= *last; ++number) {
      const std::string digits = absl::StrCat(number);
      const size_t zeros = ends.first.size() - std::min(digits.size(), ends.first.size());
      numbers.push_back(absl::StrCat(std::string(zeros, '0'), digits));
    }
  }
  return numbers;
}

// Every combination of what is so far and of what comes next.
absl::StatusOr<std::vector<std::string>> Combine(const std::vector<std::string>& heads,
                                                 const std::vector<std::string>& tails,
                                                 size_t most) {
  if (heads.size() * tails.size() > most) return TooMany("hosts", most);
  std::vector<std::string> names;
  names.reserve(heads.size() * tails.size());
  for (const std::string& head : heads) {
    for (const std::string& tail : tails) {
      if (head.size() + tail.size() > kHostBytesMax) return BadList(head, "a name is too long");
      names.push_back(absl::StrCat(head, tail));
    }
  }
  return names;
}

// One item of the list, which commas outside of brackets divide.
absl::StatusOr<std::vector<std::string>> ExpandHosts(absl::string_view item, size_t most) {
  std::vector<std::string> names = {""};
  absl::string_view rest = item;
  while (!rest.empty()) {
    const size_t open = rest.find('[');
    if (const absl::string_view literal = rest.substr(0, open); !literal.empty()) {
      if (literal.find(']') != absl::string_view::npos) return BadList(item, "']' without '['");
      DDPRUN_ASSIGN_OR_RETURN(names, Combine(names, {std::string(literal)}, most));
    }
    if (open == absl::string_view::npos) break;
    const size_t close = rest.find(']', open);
    if (close == absl::string_view::npos) return BadList(item, "'[' has no ']'");
    const absl::string_view ranges = rest.substr(open + 1, close - open - 1);
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> numbers, ExpandRanges(ranges, most));
    DDPRUN_ASSIGN_OR_RETURN(names, Combine(names, numbers, most));
    rest.remove_prefix(close + 1);
  }
  return names;
}

// Where the item ends that `text` begins with: at a comma outside of brackets, or at its end.
size_t EndOfItem(absl::string_view text) {
  bool within = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') within = true;
    if (text[i] == ']') within = false;
    if (text[i] == ',' && !within) return i;
  }
  return text.size();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text, size_t hosts_max) {
  const bool printable = std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return absl::ascii_iscntrl(byte) || absl::ascii_isspace(byte) || byte >= 0x80;
  });
  if (!printable) return BadList(text, "names are printable ASCII without blanks");
  std::vector<std::string> hosts;
  for (absl::string_view rest = text;;) {
    const size_t end = EndOfItem(rest);
    if (end == 0) return BadList(text, "a name is empty");
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            ExpandHosts(rest.substr(0, end), hosts_max));
    if (hosts.size() + names.size() > hosts_max) return TooMany("hosts", hosts_max);
    hosts.insert(hosts.end(), names.begin(), names.end());
    if (end == rest.size()) return hosts;
    rest.remove_prefix(end + 1);
  }
}

absl::StatusOr<std::vector<uint32_t>> ExpandCounts(absl::string_view text, size_t counts_max) {
  std::vector<uint32_t> counts;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    absl::string_view number = item;
    std::optional<uint32_t> times = 1;
    if (const size_t open = item.find("(x"); open != absl::string_view::npos) {
      number = item.substr(0, open);
      absl::string_view repeat = item.substr(open + 2);
      times = absl::ConsumeSuffix(&repeat, ")") ? ReadDigits(repeat) : std::nullopt;
    }
    const std::optional<uint32_t> count = ReadDigits(number);
    if (!count.has_value() || *count > kTasksMax || times.value_or(0) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list ", Quoted(text), " can't be read: it is written as 2(x3),1"));
    }
    if (*times > counts_max || counts.size() + *times > counts_max) {
      return TooMany("counts", counts_max);
    }
    counts.insert(counts.end(), *times, *count);
  }
  return counts;
}

std::optional<absl::Duration> ReadSlurmTime(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  absl::Duration time;
  if (const size_t dash = text.find('-'); dash != absl::string_view::npos) {
    const std::optional<uint32_t> days = ReadDigits(text.substr(0, dash));
    if (!days.has_value() || *days > kTimePartMax) return std::nullopt;
    time = *days * absl::Hours(24);
    text.remove_prefix(dash + 1);
    if (std::count(text.begin(), text.end(), ':') != 2) return std::nullopt;
  }
  absl::Duration clock;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() > 3) return std::nullopt;
  for (absl::string_view part : parts) {
    const std::optional<uint32_t> value = ReadDigits(part);
    if (!value.has_value() || *value > kTimePartMax) return std::nullopt;
    clock = 60 * clock + absl::Seconds(*value);
  }
  return time + clock;
}

std::string ReadScontrolField(absl::string_view text, absl::string_view name) {
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"))) {
    if (absl::ConsumePrefix(&word, name) && absl::ConsumePrefix(&word, "=")) {
      return std::string(word);
    }
  }
  return "";
}

namespace {

constexpr size_t kIdDigitsMax = 20;
constexpr uint32_t kComponentsMax = 128;  // of a heterogeneous job: MAX_HET_JOB_COMPS of Slurm

absl::Status BadVariable(const std::string& name, const std::optional<std::string>& value,
                         absl::string_view what) {
  return PlanError(absl::StrCat(name, value.has_value() ? absl::StrCat(" ", Quoted(*value)) : "",
                                ": ", what, "; --no_slurm makes ddprun ignore Slurm's variables"));
}

// The variables of one process.
class SlurmVariables {
 public:
  explicit SlurmVariables(const EnvironmentLookup& environment) : environment_(environment) {}

  std::optional<std::string> Text(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value.has_value() && value->empty()) return std::nullopt;
    return value;
  }

  // nullopt: it isn't set. Errors: plan — no number, or one above `most`.
  absl::StatusOr<std::optional<uint32_t>> Number(const std::string& name, uint32_t most) const {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return std::nullopt;
    uint32_t value = 0;
    if (!absl::SimpleAtoi(*text, &value) || value > most) {
      return BadVariable(name, text, absl::StrCat("is no number up to ", most));
    }
    return value;
  }

  absl::StatusOr<uint32_t> NumberOr(const std::string& name, uint32_t most,
                                    uint32_t fallback) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, Number(name, most));
    return value.value_or(fallback);
  }

  // The id of a job or a step. Errors: plan — it isn't digits alone.
  absl::StatusOr<std::string> Id(const std::string& name) const {
    const std::optional<std::string> text = Text(name);
    const bool good = text.has_value() && text->size() <= kIdDigitsMax &&
                      std::all_of(text->begin(), text->end(), [](char c) {
                        return absl::ascii_isdigit(static_cast<unsigned char>(c));
                      });
    if (!good) return BadVariable(name, text, "is no number");
    return *text;
  }

  // The hosts of a list variable. Errors: plan — it is missing, or can't be read.
  absl::StatusOr<std::vector<std::string>> Hosts(const std::string& name) const {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return BadVariable(name, text, "is not set");
    absl::StatusOr<std::vector<std::string>> hosts =
        ExpandHostList(*text, size_t{rendezvous::kNodesMax});
    if (!hosts.ok()) return BadVariable(name, text, hosts.status().message());
    return hosts;
  }

 private:
  const EnvironmentLookup& environment_;
};

// Slurm gives the step's list over all components; where it names one component's alone, the lists
// of all of them are put together.
absl::StatusOr<std::vector<std::string>> StepNodes(const SlurmVariables& variables) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<std::string> nodes, variables.Hosts("SLURM_STEP_NODELIST"));
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t count,
                          variables.NumberOr("SLURM_STEP_NUM_NODES", rendezvous::kNodesMax,
                                             static_cast<uint32_t>(nodes.size())));
  if (count == nodes.size()) return nodes;
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t components,
                          variables.NumberOr("SLURM_HET_SIZE", kComponentsMax, 0));
  std::vector<std::string> all;
  for (uint32_t i = 0; i < components; ++i) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> part,
                            variables.Hosts(absl::StrCat("SLURM_JOB_NODELIST_HET_GROUP_", i)));
    all.insert(all.end(), part.begin(), part.end());
  }
  if (all.size() == count) return all;
  return BadVariable("SLURM_STEP_NODELIST", variables.Text("SLURM_STEP_NODELIST"),
                     absl::StrCat("names ", CountText(nodes.size(), "node"),
                                  ", but SLURM_STEP_NUM_NODES is ", count));
}

absl::Status ReadTasks(const SlurmVariables& variables, SlurmStep* step) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  DDPRUN_ASSIGN_OR_RETURN(step->node,
                          variables.NumberOr("SLURM_NODEID", rendezvous::kNodesMax - 1, 0));
  if (step->node >= step->nodes.size()) {
    return BadVariable("SLURM_NODEID", variables.Text("SLURM_NODEID"),
                       absl::StrCat("the step has ", CountText(step->nodes.size(), "node")));
  }
  DDPRUN_ASSIGN_OR_RETURN(step->task, variables.NumberOr("SLURM_PROCID", kMost, 0));
  DDPRUN_ASSIGN_OR_RETURN(step->local_task, variables.NumberOr("SLURM_LOCALID", kMost, 0));
  DDPRUN_ASSIGN_OR_RETURN(step->tasks, variables.NumberOr("SLURM_STEP_NUM_TASKS", kMost, 1));
  const std::optional<std::string> layout = variables.Text("SLURM_STEP_TASKS_PER_NODE");
  if (!layout.has_value()) return absl::OkStatus();
  const absl::StatusOr<std::vector<uint32_t>> counts =
      ExpandCounts(*layout, size_t{rendezvous::kNodesMax});
  if (!counts.ok()) {
    return BadVariable("SLURM_STEP_TASKS_PER_NODE", layout, counts.status().message());
  }
  if (counts->size() == step->nodes.size()) step->local_tasks = std::max(1U, (*counts)[step->node]);
  return absl::OkStatus();
}

absl::Status ReadResources(const SlurmVariables& variables, SlurmStep* step) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  DDPRUN_ASSIGN_OR_RETURN(step->gpus, variables.Number("SLURM_GPUS_ON_NODE", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->cpus, variables.Number("SLURM_CPUS_ON_NODE", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->cpus_per_task, variables.Number("SLURM_CPUS_PER_TASK", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->restart_count, variables.NumberOr("SLURM_RESTART_COUNT", kMost, 0));
  // The list of the GPUs that this task may use.
  if (const std::optional<std::string> mine = variables.Text("SLURM_STEP_GPUS"); mine.has_value()) {
    const auto count = static_cast<uint32_t>(std::count(mine->begin(), mine->end(), ',') + 1);
    step->own_gpus = step->local_tasks > 1 && count < step->gpus.value_or(count);
    if (step->local_tasks == 1) step->gpus = count;
  }
  if (const std::optional<std::string> end = variables.Text("SLURM_JOB_END_TIME");
      end.has_value()) {
    int64_t seconds = 0;
    if (absl::SimpleAtoi(*end, &seconds) && seconds > 0) step->end_time = seconds;
  }
  return absl::OkStatus();
}

}  // namespace

std::string SlurmStep::RunId() const {
  return absl::StrCat(job_id, step_id.empty() ? "" : absl::StrCat(".", step_id),
                      restart_count == 0 ? "" : absl::StrCat("-restart", restart_count));
}

absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (!variables.Text("SLURM_JOB_ID").has_value()) return std::nullopt;
  const bool in_step = variables.Text("SLURM_STEP_ID").has_value();
  // salloc's shell may run anywhere; SLURMD_NODENAME is set by the node's own slurmd.
  const std::optional<std::string> here = variables.Text("SLURMD_NODENAME");
  const bool in_script = !in_step && here.has_value() && !IsBatchScriptOfManyNodes(environment);
  if (!in_step && !in_script) return std::nullopt;
  SlurmStep step;
  DDPRUN_ASSIGN_OR_RETURN(step.job_id, variables.Id("SLURM_JOB_ID"));
  if (in_step) {
    DDPRUN_ASSIGN_OR_RETURN(step.step_id, variables.Id("SLURM_STEP_ID"));
    DDPRUN_ASSIGN_OR_RETURN(step.nodes, StepNodes(variables));
    DDPRUN_RETURN_IF_ERROR(ReadTasks(variables, &step));
  } else {
    step.nodes = {*here};
  }
  DDPRUN_RETURN_IF_ERROR(ReadResources(variables, &step));
  return std::optional<SlurmStep>(std::move(step));
}

bool IsBatchScriptOfManyNodes(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (variables.Text("SLURM_STEP_ID").has_value()) return false;
  if (!variables.Text("SLURMD_NODENAME").has_value()) return false;
  const std::optional<std::string> nodes = variables.Text("SLURM_JOB_NUM_NODES");
  return nodes.has_value() && *nodes != "1";
}

uint32_t NodesOfStep(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (variables.Text("SLURM_PTY_PORT").has_value()) return 1;
  const std::optional<std::string> ignored = variables.Text("PET_NO_SLURM");
  if (ignored.has_value() && ReadBoolean(*ignored).value_or(true)) return 1;
  const absl::StatusOr<std::optional<SlurmStep>> step = ReadSlurmStep(environment);
  if (!step.ok() || !step->has_value() || (*step)->tasks < (*step)->nodes.size()) return 1;
  return static_cast<uint32_t>((*step)->nodes.size());
}

}  // namespace ddprun::launcher
