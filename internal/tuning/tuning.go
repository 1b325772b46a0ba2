// Package tuning judges how a host is set up for virtual machines: rules, each with the evidence it rests on, and
// profiles that say what is wanted of a kind of hardware. It is pure: it is handed a host's facts and returns findings.
package tuning

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Severity sorts findings by what they cost.
type Severity int

// Severities.
const (
	Advice  Severity = iota + 1 // small, or true for some loads only
	Warning                     // costs throughput, or will under load
	Fault                       // jobs fail or become several times slower
)

func (s Severity) String() string {
	switch s {
	case Advice:
		return "advice"
	case Warning:
		return "warning"
	case Fault:
		return "fault"
	}
	return fmt.Sprintf("severity %d", int(s))
}

// Role is what a host is for, or that the audited machine is a VM itself.
type Role string

// Roles.
const (
	Compute Role = "compute" // jobs: throughput counts, VMs are replaced and never migrated
	Service Role = "service" // long-lived VMs that are migrated
	Guest   Role = "guest"   // a VM, audited from inside
)

// Source is the evidence of a rule. A rule without one is not shown.
type Source struct {
	Name string // who, what, when: "CERN, EPT, Huge Pages and Benchmarking, 26 September 2015"
	URL  string // may be empty
	Says string // the figure or fact, in our words
}

// Rule is one lesson. It is a value; its file holds nothing else.
type Rule struct {
	ID       string   // "ept-off": what is wrong
	Title    string   // one line, lower case: "hardware page tables (EPT, NPT) are off"
	Severity Severity // the highest that its findings have
	Roles    []Role   // for which it holds; nil means for compute and service hosts
	Holds    string   // the hardware, kernels, QEMU and guests it is true for, in a sentence
	Cost     string   // what it costs, with the unit and the workload: "6 % of HS06 on …"
	Sources  []Source // never empty
	Why      string   // a paragraph for an administrator who never heard of it
	Fix      string   // what to do, in a sentence
	Danger   string   // what the fix may break; "" when nothing
	Undo     string   // how to go back
	// Check looks at one host. It must take any host: facts may be missing, and then nothing is found.
	Check func(h farm.HostFacts, p Profile) []Finding
}

// For reports whether the rule holds for hosts of a role.
func (r Rule) For(role Role) bool {
	if len(r.Roles) == 0 {
		return role == Compute || role == Service
	}
	return slices.Contains(r.Roles, role)
}

// Finding is one place where a host differs from what a rule wants.
type Finding struct {
	Rule     string
	Severity Severity
	Where    string // "host", "node 1", "VM web3", "CPUs 0-7"
	Wanted   string
	Got      string
	Changes  []Change // that would mend it; empty when a person has to
	Edits    []Edit   // of VMs' definitions, which Manual says in words; a person makes them
	Manual   string   // what a person has to do, where Changes cannot; may stand beside them
}

// ChangeKind sorts changes by how they are made and undone.
type ChangeKind string

// Kinds of change.
const (
	SetValue ChangeKind = "value" // write Value to a file of /sys or /proc/sys, now and at each boot
	// put Name=Value (or Name alone) on the kernel's next command line; Remove takes it off
	SetBoot    ChangeKind = "boot"
	SetModule  ChangeKind = "module"  // option Name=Value of kernel module Unit, now (by reloading it) and at each load
	SetService ChangeKind = "service" // Unit: Value is "off" (stopped and disabled) or "on"
	// option Name=Value in section Unit of the tuned profile Path, which is made where it is not there
	SetTuned ChangeKind = "tuned"
	Unmerge  ChangeKind = "unmerge" // take KSM's merged pages apart, in steps, while memory lasts; then stop KSM
)

// Change is one thing to do to a host.
type Change struct {
	Kind   ChangeKind
	Path   string // of a value or profile, from the root, without a leading slash: "sys/kernel/mm/ksm/run"
	Unit   string // service, module or section
	Name   string // boot parameter or option
	Value  string
	Remove bool
	NoVMs  bool // only while no VM runs
	Reboot bool // has no effect before the next boot
}
