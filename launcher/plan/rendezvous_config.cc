#include "launcher/plan/rendezvous_config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/endpoint_options.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::launcher {
namespace {

// Keys of torchrun's static, c10d, etcd and etcd-v2 backends that have no meaning here.
constexpr absl::string_view kMeaningless[] = {
    "cacert",
    "ca_cert",
    "cas_backoff_max_seconds",
    "cert",
    "close_timeout",
    "etcd_prefix",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "key",
    "protocol",
    "rank",
    "ssl_cert",
    "ssl_cert_key",
};

// torchrun's times have no upper bound; ours are cut off at the core's, which is days. torchrun
// takes any number as `timeout`, because c10d ignores it.
absl::Status ReadTime(const std::string& key, const Argument& value,
                      std::optional<absl::Duration>* time, std::vector<std::string>* warnings) {
  const bool is_torchruns = key != "lease";
  const absl::Duration given = ReadDuration(value.text).value_or(absl::InfiniteDuration());
  if (key == "timeout" && given <= absl::ZeroDuration()) {
    warnings->push_back(
        absl::StrCat(value.source, " ", Quoted(value.text), " is ignored: it is not above 0"));
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Duration> read =
      ParseDuration(value, absl::Milliseconds(1),
                    is_torchruns ? absl::InfiniteDuration() : rendezvous::kTimeoutMax);
  // A bad word in here is not the command line's grammar: exit status 1, as torchrun's.
  if (!read.ok()) return PlanError(read.status().message());
  *time = std::min(*read, rendezvous::kTimeoutMax);
  return absl::OkStatus();
}

absl::Status ReadKey(const std::string& key, const Argument& value, RendezvousConfig* config,
                     std::vector<std::string>* warnings) {
  std::optional<absl::Duration>* duration = nullptr;
  if (key == "join_timeout" || key == "timeout") duration = &config->join_timeout;
  if (key == "read_timeout") duration = &config->read_timeout;
  if (key == "last_call_timeout") duration = &config->last_call_timeout;
  if (key == "lease") duration = &config->lease;
  if (duration != nullptr) {
    return ReadTime(key, value, duration, warnings);
  }
  if (key == "state_dir") {
    config->state_dir = value.text;
    return absl::OkStatus();
  }
  if (key == "is_host") {
    config->is_host = ReadBoolean(value.text);
    if (!config->is_host.has_value()) return BadValue(value, "give true or false");
    return absl::OkStatus();
  }
  if (key == "store_type") {
    if (value.text == "tcp") return absl::OkStatus();
    return BadValue(value, "ddprun's service is reached over TCP alone; leave it out");
  }
  const bool known =
      std::find(std::begin(kMeaningless), std::end(kMeaningless), key) != std::end(kMeaningless);
  warnings->push_back(absl::StrCat(
      value.source,
      known ? " is ignored: it has no meaning for ddprun" : " is ignored: unknown key",
      " (known are join_timeout, read_timeout, last_call_timeout, lease, state_dir, is_host)"));
  return absl::OkStatus();
}

// A shell's quotes that were passed on, as from a file or a list of arguments.
Argument WithoutQuotes(Argument argument, std::vector<std::string>* warnings) {
  std::string& text = argument.text;
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.back() == text.front();
  if (!quoted) return argument;
  warnings->push_back(
      absl::StrCat(argument.source, " ", Printable(text), ": the quotes around it are taken off"));
  text = text.substr(1, text.size() - 2);
  return argument;
}

}  // namespace

void DefineRendezvousConfig(Argument* target, OptionSet* options) {
  const rendezvous::JobSpec job;
  options->AddValue(
      target,
      {.names = "--rdzv-conf",
       .placeholder = "KEY=VALUE,…",
       .help = absl::StrCat("join_timeout (seconds to wait for enough nodes, default ",
                            DurationText(job.join_timeout),
                            ", with the static rendezvous 900; timeout is the same), read_timeout "
                            "(seconds that the service may be out of "
                            "reach at the beginning, default join_timeout), last_call_timeout "
                            "(seconds that the first start waits for more than MIN nodes, "
                            "default ",
                            DurationText(job.last_call_timeout),
                            "), lease (see --lease), state_dir (see --state_dir), is_host "
                            "(true or false: this node does or does not host the service)."),
       .shape = ValueShape::kAssignments});
}

absl::StatusOr<RendezvousConfig> ParseRendezvousConfig(const Argument& argument, bool for_etcd,
                                                       std::vector<std::string>* warnings) {
  const Argument bare = WithoutQuotes(argument, warnings);
  DDPRUN_ASSIGN_OR_RETURN(auto values, ParseKeyValues(bare));
  // The general "timeout" comes first, so that join_timeout wins over it.
  RendezvousConfig config;
  for (const bool general : {true, false}) {
    for (const auto& [key, value] : values) {
      if ((key == "timeout") != general) continue;
      const Argument named{.text = value,
                           .source = absl::StrCat(argument.source, " ", Printable(key))};
      bool read = false;
      if (for_etcd) {
        DDPRUN_ASSIGN_OR_RETURN(read, ReadEtcdKey(key, named, &config.etcd));
      }
      if (!read) DDPRUN_RETURN_IF_ERROR(ReadKey(key, named, &config, warnings));
    }
  }
  return config;
}

void DefineServicePort(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->service_port,
                    {.names = "--service-port",
                     .placeholder = "PORT",
                     .help = "With --rdzv_backend etcd: the port of the service on the node that "
                             "has it, whichever that is, for firewalls.",
                     .default_text = "any free one, another after each takeover"});
}

// With etcd, the node that runs the service is elected.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan) {
  rendezvous::EtcdSettings& etcd = plan->etcd.emplace(configured);
  DDPRUN_RETURN_IF_ERROR(
      ReadEtcdMembers(arguments.rdzv_endpoint, arguments.rdzv_conf, environment, &etcd));
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint first, ParseEndpoint({.text = etcd.endpoints.front()}));
  plan->endpoint.host = first.host;
  plan->endpoint.port = *first.port;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t port, ParseInteger(arguments.service_port, 0,
                                                           std::numeric_limits<uint16_t>::max()));
  plan->service_port = static_cast<uint16_t>(port);
  plan->endpoint.kind = EndpointPlan::Kind::kTcp;
  plan->endpoint.hosting = EndpointPlan::Hosting::kNever;
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
