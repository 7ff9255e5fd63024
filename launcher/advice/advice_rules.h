#ifndef DDPRUN_LAUNCHER_ADVICE_ADVICE_RULES_H_
#define DDPRUN_LAUNCHER_ADVICE_ADVICE_RULES_H_

namespace ddprun::launcher {

// The text of advice_rules.yaml.
extern const char kAdviceRules[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_ADVICE_ADVICE_RULES_H_
