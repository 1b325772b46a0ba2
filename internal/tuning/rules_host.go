package tuning

// hostRules are about the host itself: kernel, KVM, memory, processors, daemons.
func hostRules() []Rule { return []Rule{} }
