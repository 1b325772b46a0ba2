package gatewaytest

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A feature's test is a row of steps. Each step is done at one place, the host or a VM, while all others wait. What is
// outside of steps is done everywhere: it touches no file, and its order is no matter of chance. So the same test runs
// in one process, which is the host and the VM's job by turns, and in one process at each place, which are joined by
// links; there, each does its own steps and learns of the others how theirs ended.

// host is the place of steps beside those of VMs, which are numbered.
const host = -1

// link joins the places where a test runs.
type link interface {
	// here reports whether this process does the steps of a place.
	here(place int) bool
	// did tells all others how a step of ours ended.
	did(stopped bool)
	// await returns how a step of another's ended.
	await(place int) (stopped bool)
}

// onHost has the host do something, as root.
func (v *vm) onHost(do func()) { v.step(host, func() any { return v.caught(do) }) }

// onVM has the VM do something that begins programs there, which no other process can.
func (v *vm) onVM(do func()) { v.step(0, func() any { return v.caught(do) }) }

// as has somebody in the VM do something, as a process of its own.
func (v *vm) as(who Identity, do func()) { v.in(0, who, do) }

// in is as in the VM of this number.
func (v *vm) in(number int, who Identity, do func()) {
	p := v.begin(number, who)
	defer p.end()
	p.do(do)
}

// process is one in a VM, with descriptors and locks of its own, which does one thing after the other.
type process struct {
	v     *vm
	place place
	work  chan func()
	done  chan any // what it panicked with, or nil
}

// begin begins a process. Its end must be called.
func (v *vm) begin(number int, who Identity) *process {
	p := &process{v: v, place: place{number, who, v.at(number)}, work: make(chan func()), done: make(chan any)}
	if v.link != nil && !v.link.here(number) {
		return p
	}
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine, and its identity with it
		first := true
		for do := range p.work {
			p.done <- v.caught(func() {
				if first {
					v.become()
				}
				first = false
				do()
			})
		}
	}()
	return p
}

// do is a step of the process.
func (p *process) do(do func()) {
	p.v.step(p.place.number, func() any {
		before := p.v.place
		defer func() { p.v.place = before }()
		p.v.place = p.place
		p.work <- do
		return <-p.done
	})
}

func (p *process) end() { close(p.work) }

// step does a step where it is to be done. It panics everywhere when nothing is left to try.
func (v *vm) step(where int, do func() any) {
	var stopped bool
	switch {
	case v.link == nil:
		stopped = v.failed(do())
	case v.link.here(where):
		stopped = v.failed(do())
		v.link.did(stopped)
	default:
		stopped = v.link.await(where)
	}
	if stopped {
		panic(stop{})
	}
}

// failed reports whether something panicked, and with what, unless that was said.
func (v *vm) failed(with any) bool {
	if with != nil && with != (stop{}) {
		v.errorf("%v", with)
	}
	return with != nil
}

// caught returns what do panics with.
func (v *vm) caught(do func()) (with any) {
	defer func() {
		if with = recover(); with != nil && with != (stop{}) {
			with = fmt.Sprintf("%v %s", with, debug.Stack())
		}
	}()
	do()
	return nil
}

// atEnd has the host do something when the test has ended, however it did.
func (v *vm) atEnd(do func()) { v.ends = append(v.ends, do) }

// on runs a test to its end or its first fatal fault.
func (v *vm) on(test func(*vm)) {
	defer func() {
		for _, do := range v.ends {
			do()
		}
	}()
	v.failed(v.caught(func() { test(v) }))
}
