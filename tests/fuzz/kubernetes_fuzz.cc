#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/schedulers/kubernetes.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// Reads the bytes as a host's name, a newline and a hosts(5) file, and checks what DomainOfHost
// promises. Returns: whether the host has a domain there. Aborts if a promise is broken.
bool ReadHostsBytes(absl::string_view bytes);

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

namespace ddprun::launcher {
namespace {

constexpr uint64_t kHostsSeed = 20261123;
constexpr int kHostsRounds = 40'000;

const char* const kHostsPieces[] = {"train-1", ".",  "ns.svc", "\t", "\n", "#",   "10.1.2.3",
                                    " ",       "\r", "::",     "a",  "-",  "\xff"};

TEST(KubernetesSmoke, RandomPieces) {
  Rng rng(kHostsSeed);
  int good = 0;
  for (int round = 0; round < kHostsRounds; ++round) {
    std::string text = "train-1\n10.1.2.3 ";
    for (uint64_t i = rng.Below(8); i > 0; --i) {
      text += kHostsPieces[rng.Below(std::size(kHostsPieces))];
    }
    good += ReadHostsBytes(text) ? 1 : 0;
  }
  // Some inputs are taken and some refused: the run reached both sides of the reader.
  EXPECT_GT(good, kHostsRounds / 1000);
  EXPECT_LT(good, kHostsRounds / 2);
}

TEST(KubernetesSmoke, Bytes) {
  EXPECT_TRUE(ReadHostsBytes("a-0\n127.0.0.1 localhost\n10.0.0.1\ta-0.b.svc\ta-0\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0\n10.0.0.1 a-0 # a-0.b\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0\n10.0.0.1 xa-0.b a-00.b a-0.b/c\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0"));
  EXPECT_FALSE(ReadHostsBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ReadHostsBytes(bytes); }
