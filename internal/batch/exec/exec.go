// Package exec is the driver for every batch system that has none: a site's own program, which is asked by JSON on its
// standard input and answers on its output, one request a run. It trusts the program with the farm, so the program must
// be root's, or ours; what it says is checked all the same.
package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// CodeBadProgram is the code of errors where a site's own batch program breaks the protocol; see docs/errors.md.
const CodeBadProgram farm.Code = "bad-batch-program"

// Options are what the configuration says of the program.
type Options struct {
	Program string        // absolute path
	Name    string        // what people call the system
	Env     []string      // on top of PATH, LC_ALL and TZ
	Limit   time.Duration // of one run; 0: half a minute
	Output  int           // most bytes of one answer; 0: 64 MiB
}

// System is the batch system behind a program.
type System struct {
	o   Options
	run program.Run
}

var _ batch.System = (*System)(nil)

// New checks the program; run is program.Start outside of tests.
func New(o Options, run program.Run) (*System, error) {
	s := &System{o, run}
	if !filepath.IsAbs(o.Program) {
		return nil, s.broken("the path is not absolute")
	}
	return s, s.safe()
}

// safe refuses a program that others than root and ourselves could replace.
func (s *System) safe() error {
	path, err := filepath.EvalSymlinks(s.o.Program)
	if err != nil {
		return s.broken(err.Error())
	}
	info, err := os.Stat(path)
	if err != nil {
		return s.broken(err.Error())
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return s.broken("it is not a program")
	}
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return s.broken(err.Error())
		}
		owner, _ := info.Sys().(*syscall.Stat_t)
		sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0 // others cannot rename what is ours in it
		if info.Mode()&0o022 != 0 && !sticky || owner == nil || owner.Uid != 0 && int(owner.Uid) != os.Getuid() {
			return s.broken("others than root may change " + at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func (s *System) broken(what string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeBadProgram,
		Message: "batch program " + s.o.Program + ": " + what, Hint: "docs/guide/batch.md describes what it has to do"}
}

// Name is the site's for it.
func (s *System) Name() farm.BatchSystem { return farm.BatchSystem(cmp.Or(s.o.Name, "exec")) }

// mostShown is how much of garbage an error quotes.
const mostShown = 120

func (s *System) ask(ctx context.Context, r Request) (Answer, error) {
	r.Protocol = Protocol
	input, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	out, err := s.run(ctx, program.Call{Path: s.o.Program, Args: []string{r.Verb}, Env: s.o.Env,
		Input: append(input, '\n'), Limit: s.o.Limit, Output: s.o.Output})
	failed := new(program.Failed)
	switch {
	case errors.As(err, &failed) && len(bytes.TrimSpace(out)) == 0:
		return Answer{}, s.broken(err.Error())
	case err != nil && !errors.As(err, &failed):
		if ctx.Err() != nil {
			return Answer{}, err
		}
		return Answer{}, s.broken(err.Error())
	}
	var a Answer
	d := json.NewDecoder(bytes.NewReader(out))
	if err := d.Decode(&a); err != nil {
		return Answer{}, s.broken(fmt.Sprintf(
			"its answer to %q is not a JSON object of the protocol: %v; it begins with %s", r.Verb, err, shown(out)))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Answer{}, s.broken(fmt.Sprintf("behind its answer to %q there is more: %s", r.Verb,
			shown(out[d.InputOffset():])))
	}
	if a.Error != nil {
		return Answer{}, a.Error.farm()
	}
	if failed.Program != "" {
		return Answer{}, s.broken(err.Error())
	}
	return a, nil
}

func shown(out []byte) string {
	text := strings.ToValidUTF8(string(out[:min(len(out), mostShown)]), "?")
	return strconv.Quote(text)
}

var kinds = []farm.Kind{farm.Invalid, farm.NotFound, farm.Conflict, farm.Denied, farm.Unavailable, farm.NoCapacity}

func (e *Error) farm() error {
	kind := farm.Kind(e.Kind)
	if !slices.Contains(kinds, kind) {
		kind = farm.Internal
	}
	code := map[farm.Kind]farm.Code{farm.NotFound: farm.CodeNoNode, farm.Conflict: farm.CodeNotOurs,
		farm.Unavailable: farm.CodeBatchAway}[kind]
	return &farm.Error{Kind: kind, Code: cmp.Or(code, farm.CodeBadReservation), Message: e.Message, Hint: e.Hint}
}

// Demand is what waits.
func (s *System) Demand(ctx context.Context) ([]batch.Demand, error) {
	a, err := s.ask(ctx, Request{Verb: "demand"})
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, d := range a.Demand {
		if d.Jobs < 1 || d.CPUs < 1 || d.Memory < 0 {
			return nil, s.broken(fmt.Sprintf("demand for %d jobs of %d CPUs and %d bytes", d.Jobs, d.CPUs, d.Memory))
		}
		t.Add(batch.Demand{Jobs: d.Jobs, Image: d.Image, Shape: d.Shape, CPUs: d.CPUs, Memory: farm.Bytes(d.Memory),
			Account: d.Account, Queue: d.Queue, Oldest: d.Oldest})
	}
	return t.Demand(), nil
}

var nodeStates = []batch.NodeState{batch.NodeIdle, batch.NodeBusy, batch.NodeClosed, batch.NodeDown, batch.NodeOff}

// Nodes are the hosts.
func (s *System) Nodes(ctx context.Context) ([]batch.Node, error) {
	a, err := s.ask(ctx, Request{Verb: "nodes"})
	if err != nil {
		return nil, err
	}
	var nodes []batch.Node
	for _, n := range a.Nodes {
		node := n.node()
		if n.Name == "" || !slices.Contains(nodeStates, node.State) || n.CPUs < 0 || n.Free < 0 || n.Free > n.CPUs {
			return nil, s.broken(fmt.Sprintf("host %q is %q with %d of %d CPUs free", n.Name, n.State, n.Free, n.CPUs))
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b batch.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

var outcomes = []batch.Outcome{batch.OutcomeDone, batch.OutcomeFailed, batch.OutcomeCancelled, batch.OutcomeTimeout,
	batch.OutcomeMemory, batch.OutcomeNode}

// Ended are jobs behind a cursor.
func (s *System) Ended(ctx context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	a, err := s.ask(ctx, Request{Verb: "ended", Cursor: string(after), Limit: limit})
	if err != nil {
		return nil, after, err
	}
	if len(a.Ended) > limit || len(a.Ended) > 0 && (a.Cursor == "" || a.Cursor == string(after)) {
		return nil, after, s.broken(fmt.Sprintf("%d ended jobs of %d asked for, and cursor %q behind %q", len(a.Ended),
			limit, a.Cursor, after))
	}
	var jobs []batch.Ended
	for _, e := range a.Ended {
		j := e.ended()
		if j.Job == "" || j.Finished.IsZero() || !slices.Contains(outcomes, j.Outcome) {
			return nil, after, s.broken(fmt.Sprintf("ended job %q has finished %v as %q", j.Job, j.Finished, j.Outcome))
		}
		jobs = append(jobs, j)
	}
	return jobs, batch.Cursor(a.Cursor), nil
}

// Close keeps jobs off a host.
func (s *System) Close(ctx context.Context, host, reason string) error {
	text, _ := batch.OurReason(batch.Reason(reason))
	_, err := s.ask(ctx, Request{Verb: "close", Host: host, Reason: text})
	return err
}

// Open lets them on again.
func (s *System) Open(ctx context.Context, host string) error {
	_, err := s.ask(ctx, Request{Verb: "open", Host: host})
	return err
}

// Drain closes a host and lists who is there.
func (s *System) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	text, _ := batch.OurReason(batch.Reason(reason))
	a, err := s.ask(ctx, Request{Verb: "drain", Host: host, Reason: text})
	if err != nil {
		return nil, err
	}
	var jobs []batch.Running
	for _, j := range a.Running {
		jobs = append(jobs, batch.Running{Job: j.ID, User: j.User, Account: j.Account, Ends: j.Ends,
			Reservation: j.Reservation})
	}
	return jobs, nil
}

// Reserve takes capacity.
func (s *System) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	a, err := s.ask(ctx, Request{Verb: "book", Reservation: wireReservation(b)})
	if err != nil {
		return batch.Reserved{}, err
	}
	if a.Reserved == nil || a.Reserved.Name != b.Name || a.Reserved.Job == "" {
		return batch.Reserved{}, s.broken("its answer to \"book\" has no reservation of that name with a job")
	}
	return a.Reserved.reserved(), nil
}

// Reserved finds a reservation among all.
func (s *System) Reserved(ctx context.Context, name string) (batch.Reserved, error) {
	all, err := s.Reservations(ctx)
	if err != nil {
		return batch.Reserved{}, err
	}
	for _, b := range all {
		if b.Name == name {
			return b, nil
		}
	}
	return batch.Reserved{}, batch.NoReservation(name)
}

// Reservations are all.
func (s *System) Reservations(ctx context.Context) ([]batch.Reserved, error) {
	a, err := s.ask(ctx, Request{Verb: "bookings"})
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for _, b := range a.Reservations {
		all = append(all, b.reserved())
	}
	return all, nil
}

// Release gives capacity back.
func (s *System) Release(ctx context.Context, name string) error {
	_, err := s.ask(ctx, Request{Verb: "release", Name: name})
	return err
}

// Lookup asks for a job.
func (s *System) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	answer, err := s.ask(ctx, Request{Verb: "lookup", Job: a.Job})
	if err != nil {
		return a, err
	}
	if answer.Lookup == nil || answer.Lookup.ID != a.Job {
		return a, s.broken("its answer to \"lookup\" is of no job, or of another")
	}
	a.Account, a.Queue, a.Ends = answer.Lookup.Account, answer.Lookup.Queue, answer.Lookup.Ends
	return a, nil
}
