package tuning

import "slices"

// Rules are all rules, in the order of their lists.
func Rules() []Rule { return slices.Concat(hostRules(), vmRules()) }
