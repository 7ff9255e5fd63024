#include "launcher/watch/job_finder.h"

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/shell_line.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/watch/agent_client.h"
#include "rendezvous/client/control_client.h"

namespace ddprun::launcher {
namespace {

std::string TargetOf(const QueryOptions& options) {
  return options.socket.empty() ? HostPort(options.host, options.port) : options.socket;
}

// A job that may be meant.
struct Choice {
  std::string target;
  std::string run_id;  // "" = the service has none now
  std::string description;
};

// "ddprun stop --rdzv_endpoint unix:/tmp/… --rdzv_id job7  # train.py"
std::string CommandText(absl::string_view command, const Choice& choice) {
  std::string text = absl::StrCat("ddprun ", command, " --rdzv_endpoint ", choice.target);
  if (!choice.run_id.empty()) absl::StrAppend(&text, " --rdzv_id ", ShellWord(choice.run_id));
  if (!choice.description.empty()) absl::StrAppend(&text, "  # ", choice.description);
  return text;
}

// What the agents of this user's jobs on this machine say of them, as far as they know where their
// service is, and that address means the same here.
std::vector<Choice> JobsOfAgents(const QueryOptions& options) {
  std::vector<Choice> jobs;
  for (const std::string& socket : FindLocalSockets(kAgentSocket)) {
    auto node = FetchNodeState(socket, options.timeout);
    if (!node.ok() || node->service().empty()) continue;
    if (!options.run_id.empty() && options.run_id != node->run_id()) continue;
    if (!absl::StartsWith(node->service(), "unix:") && !SharesOurNetwork(socket)) continue;
    jobs.push_back({node->service(), node->run_id(), node->description()});
  }
  return jobs;
}

// The same service may be found under several names of this machine, but at one port.
std::string IdentityOf(const std::string& target, const rendezvous::v1::GetStatusReply& reply) {
  const bool is_socket = absl::StartsWith(target, "unix:");
  std::string identity = is_socket ? target : target.substr(target.rfind(':'));
  for (const auto& job : reply.jobs()) absl::StrAppend(&identity, "\n", job.run_id());
  return identity;
}

// The services that answer at these addresses, each once. `error`: of the last that doesn't.
std::vector<FoundService> Answering(const std::vector<std::string>& targets,
                                    const QueryOptions& options, absl::Status* error) {
  std::vector<FoundService> found;
  std::set<std::string> identities;
  std::set<std::string> asked;
  for (const std::string& target : targets) {
    if (!asked.insert(target).second) continue;
    auto reply = rendezvous::FetchStatus(target, options.run_id, options.timeout, options.token,
                                         options.tls);
    if (!reply.ok()) {
      *error = reply.status();
    } else if (identities.insert(IdentityOf(target, *reply)).second) {
      found.push_back({target, *std::move(reply)});
    }
  }
  return found;
}

// All jobs that may be meant: those of the services that answer, and those whose service doesn't
// say so much to whoever asks.
absl::StatusOr<std::vector<Choice>> Choices(const QueryOptions& options) {
  const absl::StatusOr<std::vector<FoundService>> found = FindServices(options);
  std::vector<Choice> choices;
  std::set<std::string> known;
  for (const FoundService& service : found.ok() ? *found : std::vector<FoundService>()) {
    for (const auto& job : service.reply.jobs()) {
      choices.push_back({service.target, job.run_id(), job.description()});
      known.insert(job.run_id());
    }
  }
  for (Choice& job : JobsOfAgents(options)) {
    if (known.insert(job.run_id).second) choices.push_back(std::move(job));
  }
  if (!choices.empty()) return choices;
  if (!found.ok()) return found.status();
  for (const FoundService& service : *found) choices.push_back({service.target, "", ""});
  return choices;
}

// Asks on the terminal. Returns the number of the choice; nullopt: no answer that is one.
std::optional<size_t> Ask(absl::string_view command, const std::vector<Choice>& choices) {
  std::string text =
      absl::StrCat("several jobs run here; which one is to be meant by ddprun ", command, "?\n");
  for (size_t i = 0; i < choices.size(); ++i) {
    absl::StrAppend(&text, "  ", i + 1, ") ", choices[i].run_id, ": ", choices[i].description, " (",
                    choices[i].target, ")\n");
  }
  NotifyLines(absl::StrCat(Printable(text), "1-", choices.size(), ", or nothing: "));
  char line[32] = "";
  if (std::fgets(line, sizeof(line), stdin) == nullptr) return std::nullopt;
  size_t number = 0;
  const bool is_one = absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &number) && number >= 1 &&
                      number <= choices.size();
  return is_one ? std::optional(number - 1) : std::nullopt;
}

// Whether the only job is meant.
bool Confirms(absl::string_view command, const Choice& choice) {
  NotifyLines(Printable(absl::StrCat("ddprun ", command, ": job ", choice.run_id, ", ",
                                     choice.description, " at ", choice.target, "? [y/N] ")));
  char line[32] = "";
  if (std::fgets(line, sizeof(line), stdin) == nullptr) return false;
  return line[0] == 'y' || line[0] == 'Y';
}

}  // namespace

absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options) {
  std::vector<std::string> targets;
  if (!options.endpoint_given) {
    targets = FindLocalSockets(kServiceSocket);
    for (const Choice& job : JobsOfAgents(options)) targets.push_back(job.target);
  }
  targets.push_back(TargetOf(options));
  absl::Status error;
  std::vector<FoundService> found = Answering(targets, options, &error);
  if (!found.empty()) return found;
  if (options.endpoint_given) return error;
  // Nothing listens at the default address: it needn't be mentioned.
  const bool is_silent = absl::StrContains(error.message(), "Connection refused");
  return absl::NotFoundError(absl::StrCat(
      "no job ", options.run_id.empty() ? "" : absl::StrCat(Quoted(options.run_id), " "),
      "of yours runs on this machine", is_silent ? "" : absl::StrCat(", and ", error.message()),
      "; a service elsewhere is named with --rdzv_endpoint HOST:PORT"));
}

std::vector<agent::v1::NodeState> FindCutOffNodes(const QueryOptions& options,
                                                  const std::vector<FoundService>& found) {
  std::set<std::pair<std::string, std::string>> known;
  for (const FoundService& service : found) {
    for (const auto& job : service.reply.jobs()) {
      for (const auto& node : job.nodes()) known.emplace(job.run_id(), node.node_id());
    }
  }
  std::vector<agent::v1::NodeState> nodes;
  for (const std::string& target : FindLocalSockets(kAgentSocket)) {
    auto node = FetchNodeState(target, options.timeout);
    if (!node.ok() || !node->has_absence()) continue;
    if (known.contains({node->run_id(), node->node_id()})) continue;
    if (!options.run_id.empty() && options.run_id != node->run_id()) continue;
    if (options.endpoint_given && TargetOf(options) != node->endpoint()) continue;
    nodes.push_back(*std::move(node));
  }
  return nodes;
}

absl::StatusOr<std::string> FindTarget(absl::string_view command, QueryOptions* options,
                                       WhenOne when_one) {
  if (options->endpoint_given) return TargetOf(*options);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Choice> choices, Choices(*options));
  const bool on_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  std::optional<size_t> chosen;
  if (choices.size() == 1) {
    // A job that nobody has named may be another one than the person at the keyboard thinks of.
    const bool asks = when_one == WhenOne::kAsks && options->run_id.empty() && on_terminal;
    if (asks && !Confirms(command, choices.front())) {
      return absl::CancelledError("nothing was done");
    }
    chosen = 0;
  } else if (on_terminal) {
    chosen = Ask(command, choices);
  }
  if (chosen.has_value()) {
    options->run_id = choices[*chosen].run_id;
    return choices[*chosen].target;
  }
  std::string text = "which job? There are several on this machine; name one with --rdzv_id, or by";
  for (const Choice& choice : choices) {
    absl::StrAppend(&text, "\n  ", CommandText(command, choice));
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace ddprun::launcher
