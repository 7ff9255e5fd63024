// What an agent wants of the agents of other nodes: the job's token, and a certificate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/server/agent_server_fixture.h"
#include "tools/certs/certificates.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AgentSecurityTest : public AgentServerTest {
 protected:
  ~AgentSecurityTest() override {
    for (const std::string& file : files_) unlink(file.c_str());
  }

  AgentServerOptions WithToken(const std::string& name, const std::string& token) {
    AgentServerOptions options = Options(name);
    options.token = token;
    return options;
  }
  AgentServerOptions WithTls(const std::string& name, const TlsFiles& tls) {
    AgentServerOptions options = Options(name);
    options.tls = tls;
    return options;
  }

  // The files of a node of that CA.
  TlsFiles Files(const KeyPair& ca, const std::string& stem) {
    const KeyPair node = *MakeNode(ca, 1);
    return {.ca = Write(stem + ".ca", ca.certificate),
            .certificate = Write(stem + ".crt", node.certificate),
            .key = Write(stem + ".key", node.key)};
  }

  // Rank 0's agent is `a`: what the worker of the other one gets.
  std::string SetFrom(AgentServer* a, const AgentServerOptions& other) {
    const auto b = StartServer(other);
    a->BeginGeneration(Generation(1));
    b->BeginGeneration(Generation(1, Peer(*a)));
    Client worker(loop_.get(), Target("b"));
    return EndOf(worker.Set(1, "k", "v"));
  }

 private:
  std::string Write(const std::string& name, const std::string& text) {
    // Other paths for each test: a process looks at its files once a second.
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    files_.push_back(absl::StrCat(::testing::TempDir(), getpid(), test->name(), name));
    std::ofstream(files_.back()) << text;
    return files_.back();
  }

  std::vector<std::string> files_;
};

TEST_F(AgentSecurityTest, AnotherNodeBringsTheToken) {
  const auto a = StartServer(WithToken("a", "geheim"));
  EXPECT_EQ(SetFrom(a.get(), WithToken("b", "geheim")), "OK");
}

TEST_F(AgentSecurityTest, WithoutTheTokenNothingIsSaidOfTheJob) {
  const auto a = StartServer(WithToken("a", "geheim"));
  EXPECT_THAT(SetFrom(a.get(), WithToken("b", "falsch")), HasSubstr("wrong or missing token"));
  Client stranger(loop_.get(), Peer(*a));
  EXPECT_EQ(EndOf(stranger.Get(1, "k", 0)),
            "UNAUTHENTICATED: store: wrong or missing token of the job");
  EXPECT_EQ(EndOf(stranger.Send({})), "UNAUTHENTICATED: store: wrong or missing token of the job");
  Client worker(loop_.get(), Target("a"));  // its socket is its right
  EXPECT_EQ(EndOf(worker.Set(1, "k", "v")), "OK");
}

TEST_F(AgentSecurityTest, TwinWithoutATokenAStrangerReadsAndHearsOfTheJob) {
  const auto a = StartServer(Options("a"));
  a->BeginGeneration(Generation(1));
  Client stranger(loop_.get(), Peer(*a));
  EXPECT_EQ(EndOf(stranger.Set(1, "k", "v")), "OK");
  EXPECT_THAT(EndOf(stranger.Send({})), HasSubstr(kRunId));
}

TEST_F(AgentSecurityTest, NodesOfOneCaReachEachOther) {
  const KeyPair ca = *MakeCa(1);
  const auto a = StartServer(WithTls("a", Files(ca, "a")));
  EXPECT_EQ(SetFrom(a.get(), WithTls("b", Files(ca, "b"))), "OK");
}

TEST_F(AgentSecurityTest, NobodyElseDoes) {
  const auto a = StartServer(WithTls("a", Files(*MakeCa(1), "a")));
  EXPECT_THAT(SetFrom(a.get(), WithTls("b", Files(*MakeCa(1), "b"))), StartsWith("UNAVAILABLE"));
  Client stranger(loop_.get(), Peer(*a));
  EXPECT_THAT(EndOf(stranger.Get(1, "k", 0)), StartsWith("UNAVAILABLE"));
}

}  // namespace
}  // namespace ddprun::launcher
