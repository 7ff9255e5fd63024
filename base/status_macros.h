#ifndef DDPRUN_BASE_STATUS_MACROS_H_
#define DDPRUN_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expression` (an absl::Status) is an error.
#define DDPRUN_RETURN_IF_ERROR(expression)                                                       \
  do {                                                                                           \
    if (absl::Status ddprun_status_ = (expression); !ddprun_status_.ok()) return ddprun_status_; \
  } while (false)

#define DDPRUN_CONCAT_INNER_(a, b) a##b
#define DDPRUN_CONCAT_(a, b) DDPRUN_CONCAT_INNER_(a, b)

// DDPRUN_ASSIGN_OR_RETURN(auto value, Compute()): declares or assigns the value of a StatusOr, or
// returns its error.
#define DDPRUN_ASSIGN_OR_RETURN(declaration, expression) \
  DDPRUN_ASSIGN_OR_RETURN_(DDPRUN_CONCAT_(ddprun_result_, __LINE__), declaration, expression)
#define DDPRUN_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return std::move(result).status();            \
  declaration = *std::move(result)

#endif  // DDPRUN_BASE_STATUS_MACROS_H_
