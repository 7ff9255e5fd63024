#include "tests/fuzz/kubernetes_fuzz.h"

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "launcher/schedulers/kubernetes_pod.h"

namespace ddprun::launcher {

bool ReadHostsBytes(absl::string_view bytes) {
  constexpr size_t kDomainBytes = 253;
  const size_t newline = bytes.find('\n');
  if (newline == absl::string_view::npos) return false;
  const absl::string_view hostname = bytes.substr(0, newline);
  const absl::string_view hosts = bytes.substr(newline + 1);
  const std::string domain = DomainOfHost(hosts, hostname);
  if (domain.empty()) return false;
  DDPRUN_CHECK(domain.size() <= kDomainBytes, "a domain without a bound");
  DDPRUN_CHECK(domain.find_first_of(" \t\r\n#:/\\'\"") == std::string::npos, domain);
  DDPRUN_CHECK(absl::StrContains(hosts, absl::StrCat(hostname, ".", domain)), "made up");
  return true;
}

}  // namespace ddprun::launcher
