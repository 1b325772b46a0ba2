package runner

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/waittest"
)

// stoppable is a wrapper in a process of its own, with an agent that we play.
type stoppable struct {
	*testing.T
	events  chan api.JobEvent // for the wrapper; it asks for a job before it takes the first
	calls   chan string       // to suspend or resume, as they come
	release chan struct{}     // lets one suspend be answered
	port    net.Listener      // of the VM's job
	child   *exec.Cmd
	loose   bool // it may ask to suspend and resume, or not

	mu   sync.Mutex
	last string // of calls
}

func startStoppable(t *testing.T) *stoppable {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "st") // short: it holds unix sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &stoppable{T: t, events: make(chan api.JobEvent), calls: make(chan string, 8), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		for e := range s.events {
			json.NewEncoder(w).Encode(e)
			http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("POST /v1/jobs/{id}/done",
		func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(api.JobEnd{}) })
	mux.HandleFunc("POST /v1/vms/{vm}/{what}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.last = r.PathValue("what")
		s.mu.Unlock()
		s.calls <- r.PathValue("what")
		if r.PathValue("what") == "suspend" {
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		json.NewEncoder(w).Encode(api.VM{})
	})
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if s.port, err = net.Listen("unix", socket+"p"); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	s.child = exec.Command(os.Args[0], "-test.run", "^TestStops$")
	s.child.Env = append(os.Environ(), "GRANGE_TEST_STOPS="+socket)
	s.child.Stderr = os.Stderr
	s.child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // TSTP stops nothing in an orphaned group
	if err := s.child.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(waittest.Limit, func() { s.child.Process.Kill() }) // a wrapper that stays stopped
	t.Cleanup(func() {
		guard.Stop()
		s.child.Process.Kill()
		s.child.Wait()
		server.Close()
		s.port.Close()
		os.RemoveAll(dir)
	})
	s.events <- api.JobEvent{Event: api.EventPolicy} // it is there, and takes signals
	return s
}

// vm reports its VM to the wrapper, and returns when it knows.
func (s *stoppable) vm() {
	s.Helper()
	s.events <- api.JobEvent{Event: api.EventVM,
		VM: &api.VM{ID: "1", Name: "grange-1", JobPort: s.port.Addr().String()}}
	if _, err := s.port.Accept(); err != nil {
		s.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // it notes the VM behind this
}

func (s *stoppable) send(signals ...syscall.Signal) {
	for _, signal := range signals {
		s.child.Process.Signal(signal)
	}
}

// call waits for the wrapper to ask for this.
func (s *stoppable) call(want string) {
	s.Helper()
	select {
	case got := <-s.calls:
		if got != want {
			s.Errorf("%s, want %s", got, want)
		}
	case <-time.After(waittest.Limit):
		s.Fatalf("it never asks to %s", want)
	}
}

// becomes waits for a change of the process: "stopped", "continued" or "exited".
func (s *stoppable) becomes(want string) {
	s.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.child.Process.Pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			s.Fatal(err)
		}
		break
	}
	got := "killed"
	switch {
	case status.Stopped():
		got = "stopped"
	case status.Continued():
		got = "continued"
	case status.Exited() && status.ExitStatus() == batch.ExitNotStarted:
		got = "exited"
	}
	if got != want {
		s.Fatalf("the wrapper is %s (%x), want %s", got, status, want)
	}
}

// holdStops begins this program anew with TSTP blocked, as package early's entry has it.
func holdStops(t *testing.T) {
	const held = "GRANGE_TEST_HELD=1"
	if slices.Contains(os.Environ(), held) {
		return
	}
	runtime.LockOSThread()
	set := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGTSTP - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), held)))
}

// flurry sends pairs of TSTP and CONT with short pauses between, then one more signal.
func (s *stoppable) flurry(last syscall.Signal) {
	s.vm()
	s.loose = true
	close(s.release)
	go func() {
		for range s.calls {
		}
	}()
	for range 300 {
		for _, signal := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGCONT} {
			s.send(signal)
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		}
	}
	s.send(syscall.SIGTSTP)
	time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
	s.send(last)
}

// settles waits for the state of the process, a letter of proc(5), and the last call to stay as they are to be.
func (s *stoppable) settles(stopped bool, call string) {
	s.Helper()
	good := 0
	for range 1000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.child.Process.Pid))
		if err != nil {
			s.Fatal(err)
		}
		s.mu.Lock()
		if good++; (procstat.Parse(text).Field(3) == "T") != stopped || s.last != call {
			good = 0
		}
		s.mu.Unlock()
		if good == 30 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Errorf("stopped is not %t, or the last call is not to %s but to %s", stopped, call, s.last)
}

// end ends the job. A wrapper that is stopped, or stops now, does not end.
func (s *stoppable) end() {
	s.Helper()
	s.events <- api.JobEvent{Event: api.EventFailed,
		Problem: &api.Problem{Type: "grange:x", Status: 503, Detail: "the end"}}
	close(s.events)
	for s.loose { // what it did before is not read yet
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(s.child.Process.Pid, &status, 0, nil); err != syscall.EINTR {
			if err != nil || status.ExitStatus() != batch.ExitNotStarted {
				s.Errorf("it ended with %x, %v", status, err)
			}
			return
		}
	}
	s.becomes("exited")
	if len(s.calls) > 0 && !s.loose {
		s.Errorf("it asked to %s, too", <-s.calls)
	}
}

// TestStops: whatever comes after TSTP, the last CONT lets wrapper and VM go on.
func TestStops(t *testing.T) {
	if socket := os.Getenv("GRANGE_TEST_STOPS"); socket != "" {
		holdStops(t)
		stdin, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		j, err := New(api.JobRequest{Argv: []string{"x"}, Dir: "/"}, Options{Socket: socket, Stdin: stdin,
			Stdout: os.Stdout, Stderr: os.Stderr, Notes: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		os.Exit(j.Run(t.Context()).Status)
	}
	const tstp, cont = syscall.SIGTSTP, syscall.SIGCONT
	for name, play := range map[string]func(s *stoppable){
		"TSTP, CONT": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"CONT while the agent suspends": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.send(cont)
			select { // it waits no longer for the answer; one that does gets it
			case what := <-s.calls:
				s.calls <- what
			case <-time.After(5 * time.Second):
				s.release <- struct{}{}
			}
			s.call("resume")
		},
		"TSTP twice": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.send(tstp)
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"TSTP and CONT together": func(s *stoppable) {
			s.vm()
			s.loose = true
			s.send(tstp, cont)
		},
		"CONT alone": func(s *stoppable) {
			s.vm()
			s.send(cont, tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"many, the last a CONT": func(s *stoppable) {
			s.flurry(cont)
			s.settles(false, "resume")
		},
		"many, the last a TSTP": func(s *stoppable) {
			s.flurry(tstp)
			s.settles(true, "suspend")
			s.send(cont)
			s.settles(false, "resume")
		},
		"TSTP before there is a VM": func(s *stoppable) {
			s.send(tstp)
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStoppable(t)
			play(s)
			s.end()
		})
	}
}
