// Package conform holds what a job must find under every batch system: one list of cases, run against a real system, or
// one that speaks as it does, with grange in it. A system's package implements System; it decides nothing about what is
// right.
package conform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// System is one batch system on this machine, with an agent and grange's hooks. Cases call it from several goroutines.
type System interface {
	// Name and version, as "Slurm 22.05.8"; the first word is what files and flags call it, in lower case.
	Name() string
	// Lab is the host's agent and libvirtd.
	Lab() *lab.Lab
	// Home is a directory of the host, with the same path on it, in every VM (a bind of the site) and for jobs on
	// metal; the jobs' user, nobody, may write below it.
	Home() string
	// Slots is how many jobs of one CPU run at the same time; more wait in the queue.
	Slots() int
	// Submit queues a job as its user would, and returns the system's ID of it.
	Submit(ctx context.Context, j Job) (id string, err error)
	// Wait returns when the job has ended for good and everything of it has gone, with what the system says of it.
	Wait(ctx context.Context, id string) (Result, error)
	// Output is what the job has written so far, also while it runs.
	Output(id string) (stdout, stderr string)
	// Cancel ends the job as its user's own scancel, qdel or condor_rm would.
	Cancel(ctx context.Context, id string) error
	// Kill ends the job at once, without a chance to clean up.
	Kill(ctx context.Context, id string) error
	// Suspend and Resume stop the job and let it go on, as its administrator would. Both may return before it has
	// happened.
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	// Break makes one thing go wrong on the host until mend is called; nothing else runs meanwhile. ErrNone: the system
	// has no such thing. mend leaves the host as it was, its queues open and working.
	Break(ctx context.Context, f Fault) (mend func(), err error)
	// Sound says what is wrong with the system although nothing should run: nodes that are down or drained, jobs that
	// stay. Empty: nothing.
	Sound(ctx context.Context) []string
	Close() error
}

// ErrNone is the error for what a batch system does not have; the table of results says so with its text.
var ErrNone = errors.New("not in this system")

// ErrNoMounts is the error of systems whose users have no option to ask for directories.
var ErrNoMounts = fmt.Errorf("%w: no option of its own asks for directories", ErrNone)

// Job is what a case submits. The zero value of each field asks for nothing.
type Job struct {
	Script string        // a whole script with its first line, as the user wrote it; one of Script and Argv
	Argv   []string      // a command without a script, where the system knows such
	Args   []string      // of the script
	Dir    string        // a directory below Home that the job is submitted from; "": Home itself
	Metal  bool          // without a VM
	Image  string        // "": what the lab has for its users
	Stdin  string        // the job's input, where the system gives it one
	Env    []string      // exported by the user
	Umask  int           // of the user, where the system hands it on to jobs; 0: 022
	Shell  string        // commands of the user's shell before it submits, where the system hands its state on
	Mounts []string      // directories of the host that the user asks for, as `grange exec --bind` takes them
	Limit  time.Duration // how long it may run, as close as the system can count
	Memory int           // MiB that the job may use; 0: what the lab gives to everybody
	CPUs   int           // 0: one
	Tasks  int           // processes of the same command, together; 0: one
	Array  int           // elements; 0: no array. Wait waits for all, Output is that of all in turn
	Notify bool          // ask for a signal before the end, where that has to be asked for
}

// Result is how a job ended.
type Result struct {
	State  State
	Code   int // exit status, for Done and Failed
	Signal int // that ended the job itself, for Failed
	Stdout string
	Stderr string
	// What the system's accounting says; 0 where it says nothing.
	CPU    time.Duration
	MaxRSS int64 // bytes
	Runs   int   // how often it was started; 1 without a requeue
	Reason string
}

// State is how a job ended, in one word for all systems.
type State string

// The states.
const (
	Done        State = "done" // status 0
	Failed      State = "failed"
	Cancelled   State = "cancelled"
	Timeout     State = "timeout"
	OutOfMemory State = "out of memory"
	NotStarted  State = "not started" // held, requeued without end in sight, or failed before its first instruction
)

// Fault is one thing that can go wrong on a host. In none of them may a job run outside of a VM.
type Fault string

// The faults of "fail closed".
const (
	NoWrapper    Fault = "missing wrapper"
	NoAgent      Fault = "agent down"
	NoHypervisor Fault = "hypervisor down"
	BrokenHook   Fault = "broken hook"
	NoPlugin     Fault = "missing plug-in"
	NoImage      Fault = "unknown image"
)

// Faults are all of them.
var Faults = []Fault{NoWrapper, NoAgent, NoHypervisor, BrokenHook, NoPlugin, NoImage}
