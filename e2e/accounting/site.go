package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
)

// begin starts server and agent for the first time, joins them, brings the image, and starts the Slurm beside.
func (s *site) begin(metal int) error {
	if err := s.start("server"); err != nil {
		return err
	}
	if err := s.await(time.Minute, func() error { _, err := s.grange("host", "list"); return err }); err != nil {
		return err
	}
	if _, err := s.grange("apply", "-f", s.path("farm.toml")); err != nil {
		return err
	}
	token, err := s.grange("host", "token", "create", "--cell", "general")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("token"), []byte(strings.TrimSpace(token)), 0o600); err != nil {
		return err
	}
	if err := s.start("agent"); err != nil {
		return err
	}
	if err := s.await(time.Minute, func() error {
		_, err := s.client().MakeImage(s.ctx, api.ImageRequest{Name: "micro", Path: s.path("image")}, func(string) {})
		return err
	}); err != nil {
		return err
	}
	return s.beginSlurm(metal)
}

// beginSlurm starts the Slurm beside, with so many jobs without a VM.
func (s *site) beginSlurm(jobs int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := startChild(s.path("slurm.log"), s.self, "slurm", s.dir, strconv.Itoa(jobs))
	if err != nil {
		return err
	}
	s.slurm, s.pids[p.Pid] = p.Pid, "slurm"
	return nil
}

func (s *site) client() *api.Client { return api.NewClient(s.path("agent.sock")) }

func (s *site) start(role string) error {
	words := []string{s.self, "agent", s.dir}
	if role == "server" {
		words = []string{s.program, "server", "--config", s.path("server.toml")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	p, err := startChild(s.path(role+".log"), words...)
	if err != nil {
		return err
	}
	s.pids[p.Pid] = role
	if role == "agent" {
		s.agent = p.Pid
	} else {
		s.server = p.Pid
	}
	return nil
}

// reap waits for all that ends below this process: agent and server are started again, and of machines it notes what
// the kernel says that they used.
func (s *site) reap() {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, 0, &usage)
		if errors.Is(err, syscall.ECHILD) {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err != nil {
			continue
		}
		s.reaped(pid, time.Duration(usage.Utime.Nano()+usage.Stime.Nano()))
	}
}

func (s *site) reaped(pid int, used time.Duration) {
	note := s.path("m", pidsDir, fmt.Sprint(pid))
	id, err := os.ReadFile(note)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		os.Remove(note)
		s.machineEnded(string(id), used)
		return
	}
	role := s.pids[pid]
	delete(s.pids, pid)
	switch role {
	case "agent":
		s.agent = 0
		s.agentEnded()
	case "server":
		s.server = 0
	case "slurm":
		s.slurm = 0
		close(s.gone)
		return
	default:
		return
	}
	if !s.over {
		go func() {
			time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond)
			s.start(role)
		}()
	}
}

// stint is one VM of a job, with all attempts to make it, or one machine of a cloud VM: what one record is of. The
// machines say so, and not the records.
type stint struct {
	attempt   int // the last
	machines  map[string]bool
	used      time.Duration // as the kernel says
	mayHave   bool          // a record: a machine of it ran
	mustHave  bool          // its guest has had the job
	unwatched bool          // a machine of it ended while no agent was there to end its record
	killed    bool          // by this test
	ended     time.Time
}

// machineEnded notes what a machine has used: as the kernel said when it was about to be ended, or else when it had.
// One that never ran has no record, and nobody counts it.
func (s *site) machineEnded(id string, used time.Duration) {
	state, _ := os.ReadFile(file(s.path("m"), id, "state"))
	text, err := os.ReadFile(file(s.path("m"), id, "json"))
	var of spec
	var record struct {
		Job     string
		Attempt int
	}
	if err != nil || len(state) == 0 || json.Unmarshal(text, &of) != nil ||
		json.Unmarshal(of.Metadata, &record) != nil {
		return
	}
	clock, err := os.ReadFile(file(s.path("m"), id, "clock"))
	if n, other := strconv.ParseInt(string(clock), 10, 64); err == nil && other == nil {
		used = time.Duration(n)
		os.Remove(file(s.path("m"), id, "clock"))
	}
	key := cmp.Or(record.Job, id)
	all := s.stints[key]
	if len(all) == 0 || record.Attempt <= all[len(all)-1].attempt {
		all = append(all, &stint{machines: map[string]bool{}})
	}
	last := all[len(all)-1]
	s.stints[key] = all
	last.attempt, last.mayHave = record.Attempt, true
	last.machines[id] = true
	last.used += used
	last.killed = last.killed || s.killed[id]
	if os.Remove(file(s.path("m"), id, "job")) == nil {
		last.mustHave = true
	}
	ready, _ := os.ReadFile(s.path("ready"))
	if s.agent == 0 || string(ready) != fmt.Sprint(s.agent) {
		last.unwatched = true
	}
	last.ended = time.Now()
}

// endTime is how long an agent may take to end the record of a machine that has died.
const endTime = 5 * time.Second

// agentEnded notes which machines ended so lately that the agent cannot have ended their records.
func (s *site) agentEnded() {
	for _, stints := range s.stints {
		if last := stints[len(stints)-1]; time.Since(last.ended) < endTime {
			last.unwatched = true
		}
	}
}

// chaos kills something, again and again, until ctx ends.
func (s *site) chaos(ctx context.Context) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(time.Duration(1000+rand.IntN(3000)) * time.Millisecond):
		}
		s.mu.Lock()
		pid := 0
		switch n := rand.IntN(10); {
		case n < 4:
			pid = s.agent
		case n < 6:
			pid = s.server
		default:
			pid = s.someMachine()
		}
		if pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			kills++
		}
		s.mu.Unlock()
	}
}

// someMachine is one that runs.
func (s *site) someMachine() int {
	entries, _ := os.ReadDir(s.path("m", pidsDir))
	if len(entries) == 0 {
		return 0
	}
	name := entries[rand.IntN(len(entries))].Name()
	var pid int
	id, err := os.ReadFile(s.path("m", pidsDir, name))
	if _, other := fmt.Sscan(name, &pid); err != nil || other != nil {
		return 0
	}
	noteClock(s.path("m"), string(id), pid)
	s.killed[string(id)] = true
	return pid
}

// end ends all that was started.
func (s *site) end() {
	s.mu.Lock()
	s.over = true
	if s.slurm != 0 { // it takes away what it has started
		syscall.Kill(s.slurm, syscall.SIGTERM)
		s.mu.Unlock()
		select {
		case <-s.gone:
		case <-time.After(time.Minute):
		}
		s.mu.Lock()
	}
	for pid := range s.pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	entries, _ := os.ReadDir(s.path("m", pidsDir))
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	s.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
}

// await tries until it works.
func (s *site) await(limit time.Duration, try func() error) (err error) {
	for until := time.Now().Add(limit); time.Now().Before(until) && s.ctx.Err() == nil; {
		time.Sleep(100 * time.Millisecond)
		if err = try(); err == nil {
			return nil
		}
	}
	return errors.Join(err, s.ctx.Err())
}

// grange runs a command of the program on the server. This process waits for all children in one place, so it learns
// the end of the command by the end of its output.
func (s *site) grange(words ...string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	line := `"$@" 2>"$0".err; echo "status $?"`
	p, err := os.StartProcess("/bin/sh", append([]string{"/bin/sh", "-c", line, s.path("command"), s.program, "--server",
		"unix://" + s.path("server.sock")}, words...), &os.ProcAttr{Files: []*os.File{nil, w, nil}, Env: os.Environ()})
	w.Close()
	if err != nil {
		return "", err
	}
	defer p.Release()
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(out.String(), "status 0\n")
	if !ok {
		said, _ := os.ReadFile(s.path("command.err"))
		return "", fmt.Errorf("grange %s: %s%s", strings.Join(words, " "), text, said)
	}
	return text, nil
}
