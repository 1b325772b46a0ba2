package tuning

// vmRules are about VMs: as libvirt describes them, and seen from inside.
func vmRules() []Rule { return []Rule{} }
