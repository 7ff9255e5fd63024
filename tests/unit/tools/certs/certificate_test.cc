#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/certs/certificates.h"
#include "tools/certs/certs_command.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

const TlsFiles kNames{.ca = "ca.crt", .certificate = "node.crt", .key = "node.key"};

class CertificateTest : public ::testing::Test {
 protected:
  CertificateTest() : ca_(*MakeCa(1)), node_(*MakeNode(ca_, 1)) {}

  static std::string Wrong(const TlsTexts& texts) {
    const absl::Status status = CheckCertificates(kNames, texts);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  }

  const KeyPair ca_;
  const KeyPair node_;
};

TEST_F(CertificateTest, WhatIsMadeFits) {
  EXPECT_EQ(CheckCertificates(kNames, {ca_.certificate, node_.certificate, node_.key}),
            absl::OkStatus());
  EXPECT_THAT(node_.expires, HasSubstr(" UTC"));
}

// From one CA to another: the file holds both.
TEST_F(CertificateTest, OneOfSeveralCasIsEnough) {
  const KeyPair other = *MakeCa(1);
  EXPECT_EQ(CheckCertificates(kNames,
                              {other.certificate + ca_.certificate, node_.certificate, node_.key}),
            absl::OkStatus());
}

TEST_F(CertificateTest, NoTwoAreAlike) {
  const KeyPair again = *MakeNode(ca_, 1);
  EXPECT_NE(again.certificate, node_.certificate);
  EXPECT_NE(again.key, node_.key);
}

TEST_F(CertificateTest, EachFileIsNamedByWhatIsWrongWithIt) {
  const KeyPair other_ca = *MakeCa(1);
  const KeyPair other = *MakeNode(other_ca, 1);
  EXPECT_THAT(Wrong({"", node_.certificate, node_.key}), HasSubstr("ca.crt holds no certificate"));
  EXPECT_THAT(Wrong({ca_.certificate, "x", node_.key}), HasSubstr("node.crt holds no certificate"));
  EXPECT_THAT(Wrong({ca_.certificate, node_.certificate, "x"}),
              HasSubstr("node.key holds no private key"));
  EXPECT_THAT(Wrong({ca_.certificate, node_.certificate, other.key}),
              HasSubstr("node.key is not the key of node.crt"));
  EXPECT_THAT(Wrong({other_ca.certificate, node_.certificate, node_.key}),
              HasSubstr("node.crt is not signed by the CA of ca.crt"));
  // A CA is no node.
  EXPECT_THAT(Wrong({ca_.certificate, ca_.certificate, ca_.key}),
              HasSubstr("does not name ddprun"));
}

TEST_F(CertificateTest, OnlyACaSigns) {
  EXPECT_FALSE(MakeNode({.certificate = ca_.certificate, .key = node_.key}, 1).ok());
  EXPECT_FALSE(MakeNode({.certificate = "x", .key = "y"}, 1).ok());
  // A node's certificate has no right to sign, so the one that it signs isn't accepted.
  const KeyPair child = *MakeNode(node_, 1);
  EXPECT_THAT(Wrong({ca_.certificate, child.certificate + node_.certificate, child.key}),
              HasSubstr("is not signed by the CA"));
}

TEST(CertsOptions, TakesOneFolderAndDays) {
  const auto options = ParseCertsOptions({"--days", "30", "--renew", "tls/"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->options.dir, "tls");
  EXPECT_EQ(options->options.days, 30U);
  EXPECT_TRUE(options->options.renew);
  EXPECT_FALSE(ParseCertsOptions({}).ok());
  EXPECT_FALSE(ParseCertsOptions({"a", "b"}).ok());
  EXPECT_FALSE(ParseCertsOptions({"--days", "0", "tls"}).ok());
  EXPECT_THAT(ParseCertsOptions({"--help"})->help, HasSubstr("ca.key"));
}

}  // namespace
}  // namespace ddprun::launcher
