// Interfaces, and devices that reach other machines' memory.
#include <ifaddrs.h>
#include <sys/socket.h>

#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/files.h"
#include "tools/doctor/core/machine_parsers.h"
#include "tools/doctor/machine_probe.h"

namespace ddprun::launcher {
namespace {

std::map<std::string, std::vector<std::string>> AddressesByInterface() {
  std::map<std::string, std::vector<std::string>> addresses;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    std::string text = AddressText(entry->ifa_addr);
    if (!text.empty()) addresses[entry->ifa_name].push_back(std::move(text));
  }
  return addresses;
}

}  // namespace

std::vector<InterfaceFacts> ProbeInterfaces(const std::string& root) {
  constexpr char kLoopbackType[] = "772";  // ARPHRD_LOOPBACK
  std::map<std::string, std::vector<std::string>> addresses = AddressesByInterface();
  std::vector<InterfaceFacts> interfaces;
  const std::string folder = root + "/sys/class/net";
  for (const std::string& name : NamesIn(folder)) {
    const std::string own = absl::StrCat(folder, "/", name);
    InterfaceFacts facts{.name = name};
    facts.addresses = std::move(addresses[name]);
    if (facts.addresses.empty() && NamesIn(own + "/device").empty()) continue;
    const std::string state = FirstLine(own + "/operstate");
    facts.up = state == "up" || state == "unknown";  // which loopback and tunnels say
    facts.loopback = FirstLine(own + "/type") == kLoopbackType;
    int32_t speed = 0;
    if (absl::SimpleAtoi(FirstLine(own + "/speed"), &speed) && speed > 0) {
      facts.speed_mbit = static_cast<uint32_t>(speed);
    }
    if (!absl::SimpleAtoi(FirstLine(own + "/mtu"), &facts.mtu)) facts.mtu = 0;
    interfaces.push_back(std::move(facts));
  }
  return interfaces;
}

std::vector<RdmaPort> ProbeRdmaPorts(const std::string& root) {
  std::vector<RdmaPort> ports;
  const std::string folder = root + "/sys/class/infiniband";
  for (const std::string& device : NamesIn(folder)) {
    for (const std::string& number : NamesIn(absl::StrCat(folder, "/", device, "/ports"))) {
      const std::string own = absl::StrCat(folder, "/", device, "/ports/", number);
      RdmaPort port{.device = device};
      if (!absl::SimpleAtoi(number, &port.port)) continue;
      port.state = ParsePortState(FirstLine(own + "/state"));
      port.rate = FirstLine(own + "/rate");
      port.link_layer = FirstLine(own + "/link_layer");
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

}  // namespace ddprun::launcher
