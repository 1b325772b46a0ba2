package server

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// verdict is what an action means in a state.
type verdict int

const (
	refuse  verdict = iota
	perform         // write it down; the host does the rest
	already         // it is so: nothing changes
	retry           // wanted already, but it failed: the host is to try once more
	replace         // there is no host to ask: the VM is placed anew, with fresh disks
	remove          // there is no host to ask: the row goes
)

// legal is what people may do to a VM in which state. What is not here is refused. An unknown VM's host hears of it
// when it answers again, for it is told what is wanted, and not what to do.
var legal = map[farm.VMState]map[policy.Action]verdict{
	farm.VMPlacing: {policy.StartVM: already, policy.UpdateVM: perform, policy.ResizeVM: perform,
		policy.RebuildVM: perform, policy.DeleteVM: remove},
	farm.VMStarting: {policy.StartVM: already, policy.StopVM: perform, policy.RestartVM: perform,
		policy.UpdateVM: perform, policy.ResizeVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform},
	farm.VMRunning: {policy.StartVM: already, policy.StopVM: perform, policy.RestartVM: perform,
		policy.UpdateVM: perform, policy.ResizeVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform,
		policy.ConsoleVM: perform, policy.ConnectVM: perform},
	farm.VMStopping: {policy.StartVM: perform, policy.StopVM: already, policy.UpdateVM: perform,
		policy.ResizeVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform, policy.ConsoleVM: perform},
	farm.VMStopped: {policy.StartVM: perform, policy.StopVM: already, policy.UpdateVM: perform,
		policy.ResizeVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform},
	farm.VMFailed: {policy.StartVM: retry, policy.StopVM: perform, policy.RestartVM: perform, policy.UpdateVM: perform,
		policy.ResizeVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform, policy.ConsoleVM: perform},
	farm.VMUnknown: {policy.StartVM: perform, policy.StopVM: perform, policy.RestartVM: perform,
		policy.UpdateVM: perform, policy.RebuildVM: perform, policy.DeleteVM: perform},
	farm.VMLost:     {policy.UpdateVM: perform, policy.RebuildVM: replace, policy.DeleteVM: remove},
	farm.VMDeleting: {policy.DeleteVM: already},
	farm.VMGone:     {policy.DeleteVM: already},
}

// instead is what to do where a state refuses.
var instead = map[farm.VMState]string{
	farm.VMPlacing:  "it has no host yet; `grange why VM` says what it waits for",
	farm.VMStarting: "wait until it runs",
	farm.VMStopping: "wait until it is stopped",
	farm.VMStopped:  "start it first",
	farm.VMFailed:   "see why it failed with `grange vm show`; start, restart or rebuild it",
	farm.VMUnknown:  "its host is silent; wait until it answers, or ask an operator to look at it",
	farm.VMLost:     "its host is gone and its disks with it; rebuild it, or delete it",
	farm.VMDeleting: "it is being deleted; make a new one",
	farm.VMGone:     "it is gone; make a new one",
}

// judge is the verdict on an action in a state, and the error where it is refused.
func judge(vm farm.VM, state farm.VMState, a policy.Action) (verdict, error) {
	if vm.Wanted.Power == farm.PowerDeleted && a != policy.DeleteVM {
		state = farm.VMDeleting // also of a host that is silent or lost: no order takes a deletion back
	}
	v := legal[state][a]
	if v != refuse && a == policy.RestartVM && vm.Wanted.Power == farm.PowerOff {
		v, state = refuse, farm.VMStopped // an unknown or failed VM that people have stopped
	}
	if a == policy.StartVM && state == farm.VMStopped && vm.Wanted.Power == farm.PowerOn {
		v = retry // its guest powered off, and the host leaves it so until it is asked anew
	}
	if v != refuse {
		return v, nil
	}
	return refuse, &farm.Error{Kind: farm.Conflict, Code: farm.CodeVMState,
		Message: fmt.Sprintf("VM %s is %s: it cannot be %s now", action.Label(vm), state, done[a]),
		Hint:    instead[state]}
}

// done is how an action is told once it has happened.
var done = map[policy.Action]string{
	policy.CreateVM: "created", policy.UpdateVM: "changed", policy.StartVM: "started", policy.StopVM: "stopped",
	policy.RestartVM: "restarted",
	policy.ResizeVM:  "resized", policy.RebuildVM: "rebuilt", policy.DeleteVM: "deleted", policy.ConsoleVM: "watched",
	policy.ConnectVM: "connected to",
}

// Can reports whether the state of a VM allows an action that would change something. Whether a caller may do it is
// another question.
func (v VMView) Can(a policy.Action) bool {
	is, err := judge(v.VM, v.State, a)
	return err == nil && is != already
}
