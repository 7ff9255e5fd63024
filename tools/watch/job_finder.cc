#include "tools/watch/job_finder.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/agent_settings.h"
#include "launcher/options/shell_line.h"
#include "launcher/os/runtime_dir.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/etcd/service_lookup.h"
#include "tools/watch/job_service.h"
#include "tools/watch/own_machine.h"

namespace ddprun::launcher {
namespace {

using rendezvous::ServiceAddress;

std::string EndpointOf(const QueryOptions& options) {
  return options.socket.empty() ? HostPort(options.host, options.port) : options.socket;
}

// A job that may be meant.
struct Choice {
  ServiceAddress service;  // "" = etcd knows
  std::string run_id;      // "" = the service has none now
  std::string description;
};

// "ddprun stop --rdzv_endpoint unix:/tmp/… --rdzv_id job7  # train.py"
std::string CommandText(absl::string_view command, const Choice& choice) {
  const std::string& service = choice.service.name;
  std::string text = absl::StrCat(
      "ddprun ", command, service.empty() ? " …" : absl::StrCat(" --rdzv_endpoint ", service));
  if (!choice.run_id.empty()) absl::StrAppend(&text, " --rdzv_id ", ShellWord(choice.run_id));
  if (!choice.description.empty()) absl::StrAppend(&text, "  # ", choice.description);
  return text;
}

// The jobs of this user's agents on this machine, if they know the address of their service, and
// the address is valid here.
std::vector<Choice> JobsOfAgents(const QueryOptions& options) {
  std::vector<Choice> jobs;
  for (const OwnNode& node : FindOwnNodes(options.run_id, options.timeout)) {
    const std::string& service = node.state.service();
    if (service.empty()) continue;
    if (!absl::StartsWith(service, "unix:") && !SharesOurNetwork(node.socket)) continue;
    jobs.push_back({AddressOf(service), node.state.run_id(), node.state.description()});
  }
  return jobs;
}

// One service may be found under several names.
std::string IdentityOf(const rendezvous::v1::GetStatusReply& reply) {
  std::string identity = absl::StrCat(reply.term());
  for (const auto& job : reply.jobs()) absl::StrAppend(&identity, "\n", job.run_id());
  return identity;
}

// The services that answer at these addresses, each once. `error`: of the first that doesn't.
std::vector<FoundService> Answering(const std::vector<ServiceAddress>& services,
                                    const QueryOptions& options, absl::Status* error) {
  std::vector<FoundService> found;
  std::set<std::string> identities;
  std::set<std::string> asked;
  for (const ServiceAddress& service : services) {
    if (!asked.insert(service.target).second) continue;
    auto reply = rendezvous::FetchStatus(service, options.run_id, options.timeout, options.token,
                                         options.tls);
    if (!reply.ok()) {
      error->Update(reply.status());
    } else if (identities.insert(IdentityOf(*reply)).second) {
      found.push_back({service, *std::move(reply)});
    }
  }
  return found;
}

absl::StatusOr<FoundService> FindJobInEtcd(const QueryOptions& options, Instant end) {
  DDPRUN_ASSIGN_OR_RETURN(const JobService service,
                          JobService::FindInEtcd(options, end - MonotonicNow()));
  const absl::Duration left = std::max(end - MonotonicNow(), absl::Milliseconds(1));
  auto reply =
      rendezvous::FetchStatus(service.address(), options.run_id, left, options.token, options.tls);
  if (!reply.ok()) return reply.status();
  return FoundService{service.address(), *std::move(reply)};
}

// The service of each job that etcd has. Each gets its share of the time: one that hangs, or has no
// service now, leaves enough of it for the others, and has a line in place of its status.
absl::StatusOr<std::vector<FoundService>> FindAllInEtcd(QueryOptions options) {
  const Instant until = MonotonicNow() + options.timeout;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs,
                          rendezvous::ServiceLookup::Jobs(*options.etcd, options.timeout));
  std::vector<FoundService> found;
  absl::Status error;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Instant now = MonotonicNow();
    options.run_id = jobs[i];
    absl::StatusOr<FoundService> service =
        FindJobInEtcd(options, now + (until - now) / static_cast<int64_t>(jobs.size() - i));
    if (service.ok()) {
      found.push_back(*std::move(service));
    } else {
      Notify(Printable(absl::StrCat("job ", jobs[i], ": ", service.status().message())));
      error.Update(service.status());
    }
  }
  if (found.empty()) return error;
  return found;
}

absl::StatusOr<std::vector<FoundService>> FindInEtcd(const QueryOptions& options) {
  if (options.run_id.empty()) return FindAllInEtcd(options);
  DDPRUN_ASSIGN_OR_RETURN(
      JobService service,
      JobService::FindInEtcd(options, std::max(options.timeout, JobService::kTakeover)));
  auto reply = service.Ask([&](const ServiceAddress& address) {
    return rendezvous::FetchStatus(address, options.run_id, options.timeout, options.token,
                                   options.tls);
  });
  if (!reply.ok()) return reply.status();
  return std::vector<FoundService>{{service.address(), *std::move(reply)}};
}

// All jobs that may be meant: those of services that answer, and those of services that hide their
// jobs from this caller.
absl::StatusOr<std::vector<Choice>> Choices(const QueryOptions& options) {
  const absl::StatusOr<std::vector<FoundService>> found = FindServices(options);
  std::vector<Choice> choices;
  std::set<std::string> known;
  for (const FoundService& service : found.ok() ? *found : std::vector<FoundService>()) {
    for (const auto& job : service.reply.jobs()) {
      choices.push_back({service.address, job.run_id(), job.description()});
      known.insert(job.run_id());
    }
  }
  for (Choice& job : JobsOfAgents(options)) {
    if (known.insert(job.run_id).second) choices.push_back(std::move(job));
  }
  if (!choices.empty()) return choices;
  if (!found.ok()) return found.status();
  for (const FoundService& service : *found) choices.push_back({service.address, "", ""});
  return choices;
}

// Asks on the terminal. Returns the number of the choice; nullopt: no answer that is one.
std::optional<size_t> Ask(absl::string_view command, const std::vector<Choice>& choices) {
  std::string text =
      absl::StrCat("several jobs run here; which one is to be meant by ddprun ", command, "?\n");
  for (size_t i = 0; i < choices.size(); ++i) {
    absl::StrAppend(&text, "  ", i + 1, ") ", choices[i].run_id, ": ", choices[i].description);
    const std::string& service = choices[i].service.name;
    absl::StrAppend(&text, service.empty() ? "" : absl::StrCat(" (", service, ")"), "\n");
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
  const std::string& service = choice.service.name;
  NotifyLines(
      Printable(absl::StrCat("ddprun ", command, ": job ", choice.run_id, ", ", choice.description,
                             service.empty() ? "" : " at ", service, "? [y/N] ")));
  char line[32] = "";
  if (std::fgets(line, sizeof(line), stdin) == nullptr) return false;
  return line[0] == 'y' || line[0] == 'Y';
}

// The job that is meant. Params: named: the user has named it; where: there are several.
absl::StatusOr<Choice> Choose(absl::string_view command, bool named, WhenOne when_one,
                              const std::vector<Choice>& choices, absl::string_view where) {
  const bool on_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  std::optional<size_t> chosen;
  if (choices.size() == 1) {
    // Without --rdzv_id the only job may be another one than the user thinks of.
    const bool asks = when_one == WhenOne::kAsks && !named && on_terminal;
    if (asks && !Confirms(command, choices.front())) {
      return absl::CancelledError("nothing was done");
    }
    chosen = 0;
  } else if (on_terminal) {
    chosen = Ask(command, choices);
  }
  if (chosen.has_value()) return choices[*chosen];
  std::string text =
      absl::StrCat("which job? There are several ", where, "; name one with --rdzv_id, or by");
  for (const Choice& choice : choices) {
    absl::StrAppend(&text, "\n  ", CommandText(command, choice));
  }
  return absl::InvalidArgumentError(text);
}

// Whether the user has named what an agent calls its endpoint: of an etcd, one of its members.
bool IsNamed(const QueryOptions& options, absl::string_view endpoint) {
  if (!options.etcd.has_value()) return EndpointOf(options) == endpoint;
  if (!absl::ConsumePrefix(&endpoint, kEtcdEndpoint)) return false;
  const std::vector<std::string> members = absl::StrSplit(endpoint, ", ");
  const std::vector<std::string>& named = options.etcd->endpoints;
  return std::find_first_of(members.begin(), members.end(), named.begin(), named.end()) !=
         members.end();
}

}  // namespace

absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options) {
  if (options.etcd.has_value()) return FindInEtcd(options);
  std::vector<ServiceAddress> services;
  if (!options.endpoint_given) {
    for (const Choice& job : JobsOfAgents(options)) services.push_back(job.service);
  }
  const bool has_job = !services.empty();
  if (!options.endpoint_given) {
    // Services without an agent that answers. A port in another network is another machine's.
    for (const LocalService& service : FindLocalServices()) {
      if (!service.listen.empty() && !SharesOurNetwork(service.socket)) continue;
      services.emplace_back(service.socket);
    }
  }
  services.push_back(AddressOf(EndpointOf(options)));
  absl::Status error;
  std::vector<FoundService> found = Answering(services, options, &error);
  if (!found.empty()) return found;
  // If the user named the service, or one of their jobs has it, report why it doesn't answer.
  if (options.endpoint_given || has_job) return error;
  // If nothing listens at the default address, don't mention it.
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
  for (OwnNode& node : FindOwnNodes(options.run_id, options.timeout)) {
    if (!node.state.has_absence()) continue;
    if (known.contains({node.state.run_id(), node.state.node_id()})) continue;
    if (options.endpoint_given && !IsNamed(options, node.state.endpoint())) continue;
    nodes.push_back(std::move(node.state));
  }
  return nodes;
}

absl::StatusOr<ServiceAddress> ChooseService(absl::string_view command, QueryOptions* options,
                                             WhenOne when_one) {
  if (options->endpoint_given) return AddressOf(EndpointOf(*options));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Choice> choices, Choices(*options));
  DDPRUN_ASSIGN_OR_RETURN(const Choice choice, Choose(command, !options->run_id.empty(), when_one,
                                                      choices, "on this machine"));
  options->run_id = choice.run_id;
  return choice.service;
}

absl::Status ChooseJobInEtcd(absl::string_view command, QueryOptions* options, WhenOne when_one) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs,
                          rendezvous::ServiceLookup::Jobs(*options->etcd, options->timeout));
  const std::string where = absl::StrCat("in etcd, under ", options->etcd->prefix);
  std::vector<Choice> choices;
  for (const std::string& job : jobs) choices.push_back({ServiceAddress(""), job, where});
  DDPRUN_ASSIGN_OR_RETURN(const Choice choice,
                          Choose(command, /*named=*/false, when_one, choices, "in etcd"));
  options->run_id = choice.run_id;
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
