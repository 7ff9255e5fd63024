#ifndef DDPRUN_RENDEZVOUS_ETCD_CORE_ETCD_SETTINGS_H_
#define DDPRUN_RENDEZVOUS_ETCD_CORE_ETCD_SETTINGS_H_

#include <string>
#include <vector>

namespace ddprun::rendezvous {

// How to reach a cluster of etcd, and the place of our keys in it.
struct EtcdSettings {
  std::vector<std::string> endpoints;  // "host:port", at least one
  std::string prefix = "/ddprun";      // of all keys; without a slash at its end
  std::string user;                    // "" = etcd asks for none
  std::string password;
  bool tls = false;
  // PEM files, read again when they change. ca_file "" = the authorities that this machine trusts;
  // cert_file and key_file "" = etcd asks for no certificate of ours.
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_CORE_ETCD_SETTINGS_H_
