#include "worker/torch/errors/exception_status.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "absl/status/statusor.h"
#include "ddprun/status_error.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* type;
  const char* text;
  bool peer;
};

class PeerErrorTest : public ::testing::TestWithParam<Case> {};

TEST_P(PeerErrorTest, IsToldFromOwnErrors) {
  EXPECT_EQ(IsPeerError(GetParam().type, GetParam().text), GetParam().peer);
}

INSTANTIATE_TEST_SUITE_P(
    Table, PeerErrorTest,
    ::testing::Values(
        Case{"gloo::IoException", "[pair.cc:553] Connection closed by peer [127.0.0.1]:123", true},
        Case{"gloo::IoException", "Timed out waiting 4000ms for recv operation", true},
        Case{"c10::DistStoreError", "ABORTED: store of generation 3: the generation is over", true},
        Case{"c10::DistNetworkError", "failed to recv, got 0 bytes", true},
        Case{"c10::Error", "Gloo connectFullMesh failed with … Connect timeout", true},
        Case{"c10::DistBackendError", "NCCL error: remote process exited", true},
        Case{"c10::DistBackendError",
             "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
             "key-value store by key '0', but store->get('0') got error: ABORTED: generation 3 is "
             "over. This may indicate a possible application crash on rank 0 or a network set up "
             "issue.",
             true},
        Case{"c10::DistBackendError",
             "NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.28.9\n"
             "ncclSystemError: System call (e.g. socket, malloc) or external library call failed "
             "or device error.\nLast error:\nsocketProgressOpt: Call to send to "
             "127.0.0.1<35309> failed : Connection reset by peer",
             true},
        Case{"c10::DistBackendError",
             "NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.28.9\n"
             "ncclSystemError: System call (e.g. socket, malloc) or external library call failed "
             "or device error.\nLast error:\nError while creating shared memory segment",
             false},
        Case{"c10::DistBackendError", "ncclInvalidUsage: Duplicate GPU detected", false},
        Case{"gloo::EnforceNotMet", "op.preamble.length <= op.nbytes. 8 vs 4", false},
        Case{"c10::Error", "mat1 and mat2 shapes cannot be multiplied", false},
        Case{"std::runtime_error",
             "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer",
             true},
        // Connections of the program's own.
        Case{"std::system_error", "read: Connection reset by peer", false},
        Case{"std::runtime_error", "database: Connection closed by peer", false},
        Case{"c10::OutOfMemoryError", "CUDA out of memory", false},
        Case{"std::runtime_error", "bad data", false}));

TEST(ExceptionStatusTest, AnExceptionBecomesAStatusWithItsType) {
  const absl::Status status =
      CatchExceptions([]() -> absl::Status { throw std::runtime_error("no such digit"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "std::runtime_error: no such digit");
  EXPECT_EQ(ToWorkerError(status).message, "std::runtime_error: no such digit");
}

TEST(ExceptionStatusTest, APeersFaultIsMarkedFirst) {
  const absl::Status status = CatchExceptions(
      []() -> absl::Status { throw c10::Error("x: Connection closed by peer", nullptr); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(ToWorkerError(status).message, StartsWith("PeerError: c10::Error: x"));
}

TEST(ExceptionStatusTest, AStatusErrorIsItsOwnStatus) {
  const absl::Status status = CatchExceptions([]() -> absl::Status {
    OrThrow(absl::OkStatus());
    OrThrow(absl::DataLossError("shard 7 is cut short"));
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::DataLossError("shard 7 is cut short"));
  EXPECT_EQ(OrThrow(absl::StatusOr<int>(7)), 7);
}

TEST(ExceptionStatusTest, WhatIsNoExceptionTypeIsNamedToo) {
  const absl::Status status = CatchExceptions([]() -> absl::Status { throw 7; });
  EXPECT_EQ(status.message(), "int: not a std::exception");
}

TEST(ExceptionStatusTest, ResultsPassThrough) {
  const absl::StatusOr<int> value = CatchExceptions([]() -> absl::StatusOr<int> { return 7; });
  EXPECT_EQ(*value, 7);
  const absl::Status status =
      CatchExceptions([]() -> absl::Status { return absl::DataLossError("torn"); });
  EXPECT_EQ(ToWorkerError(status).message, "DATA_LOSS: torn");
}

}  // namespace
}  // namespace ddprun::worker
